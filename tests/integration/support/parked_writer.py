"""A process that opens many stores, sends each up to some byte, and then waits to be killed.

It prints "parked" once gRPC has taken every byte that it means to send.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

from kvorum.core.fingerprint import Fingerprint
from kvorum.v1 import cache_pb2
from tests.integration.support.children import child
from tests.integration.support.values import draw_bytes
from tests.integration.support.wire import Block, Scope, Wire, put_messages

_PARKED_S: Final = 60.0


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

    def block(self, scope: Scope) -> Block:
        """Return the block that is announced."""
        payload = draw_bytes(self.size, self.seed)
        return Block(bytes.fromhex(self.key), payload, frame_sizes=scope.frame_sizes)


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
    messages: Iterator[cache_pb2.PutRequest], standing: threading.Semaphore
) -> Iterator[cache_pb2.PutRequest]:
    yield from messages
    standing.release()
    threading.Event().wait()  # for ever: the test kills this process


def park(
    address: str, scope: Scope, stores: Sequence[Torn], condition: cache_pb2.PutCondition.ValueType
) -> list[object]:
    """Open all stores, and return the calls when each stands at its byte; dropped, they end."""
    wire = Wire(address)
    calls: list[object] = [wire]
    standing = threading.Semaphore(0)
    for store in stores:
        messages = put_messages(
            scope,
            [store.block(scope)],
            condition=condition,
            chunk_bytes=16 << 10,
        )
        sent = _stop(first_bytes(messages, store.sent), standing)
        calls.append(wire.cache.Put.future(sent, timeout=_PARKED_S))
    for store in stores:
        if not standing.acquire(timeout=_PARKED_S):
            raise AssertionError(f"{store} does not stand")
    return calls


@contextmanager
def parked(
    address: str,
    scope: Scope,
    stores: Sequence[Torn],
    condition: cache_pb2.PutCondition.ValueType = cache_pb2.PUT_CONDITION_IF_ABSENT,
) -> Iterator[subprocess.Popen[str]]:
    """Run such a process; in the context it is parked, and at its end it is killed (SIGKILL)."""
    task = {
        "address": address,
        "namespace": scope.name,
        "fingerprint": asdict(scope.fingerprint),
        "stores": [asdict(store) for store in stores],
        "condition": int(condition),
    }
    with child("parked_writer", task) as process:
        if process.stdout is None or process.stdout.readline() != "parked\n":
            raise AssertionError("the writer did not park")
        yield process


def _main(task: Mapping[str, Any]) -> None:
    calls = park(
        task["address"],
        Scope(task["namespace"], Fingerprint.from_mapping(task["fingerprint"])),
        [Torn(**store) for store in task["stores"]],
        cache_pb2.PutCondition.ValueType(task["condition"]),
    )
    print("parked", flush=True)  # noqa: T201  # read by the test
    sys.stdin.read()
    raise AssertionError(f"{len(calls)} stores stood, and nobody killed their writer")


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
