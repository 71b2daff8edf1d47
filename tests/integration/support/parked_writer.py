"""A process that opens many stores, sends each up to some byte, and then waits to be killed.

It prints "parked" once gRPC has taken every byte that it means to send.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kvorum.v1 import cache_pb2
from tests.integration.support.values import TENSORS, draw_bytes
from tests.integration.support.wire import Block, Scope, Wire, put_messages


@dataclass(frozen=True, slots=True)
class Torn:
    """A store that breaks off.

    Attributes:
        key: the block key, as hexadecimal.
        size: bytes of the block.
        sent: bytes that are sent before the writer stops.
        seed: what the bytes are drawn from.
    """

    key: str
    size: int
    sent: int
    seed: int

    @property
    def block(self) -> Block:
        """The block that is announced."""
        return Block(bytes.fromhex(self.key), draw_bytes(self.size, self.seed))


def first_bytes(
    messages: Iterator[cache_pb2.PutRequest], sent: int
) -> Iterator[cache_pb2.PutRequest]:
    """Yield the opening and then exactly the first `sent` bytes of payload."""
    yield next(messages)
    for message in messages:
        if sent <= 0:
            return
        length = min(message.chunks[0].length, sent)
        sent -= length
        message.chunks[0].length = length
        message.payload = message.payload[:length]
        yield message


def _stop(
    messages: Iterator[cache_pb2.PutRequest], parked: threading.Semaphore
) -> Iterator[cache_pb2.PutRequest]:
    yield from messages
    parked.release()
    threading.Event().wait()  # for ever: the test kills this process


def park(address: str, namespace: str, condition: int, stores: Sequence[Torn]) -> None:
    """Open all stores, and return when each stands at its byte."""
    wire = Wire(address)
    scope = Scope(namespace, TENSORS)
    parked = threading.Semaphore(0)
    for store in stores:
        messages = put_messages(
            scope,
            [store.block],
            condition=cache_pb2.PutCondition.ValueType(condition),
            chunk_bytes=16 << 10,
        )
        # The call goes on by itself once it was begun.
        wire.cache.Put.future(_stop(first_bytes(messages, store.sent), parked), timeout=60)
    for _ in stores:
        parked.acquire()


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    task["stores"] = [Torn(**store) for store in task["stores"]]
    park(**task)
    print("parked", flush=True)  # noqa: T201  # read by the test
    sys.stdin.read()
