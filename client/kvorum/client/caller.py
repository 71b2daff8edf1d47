"""Caller: one call to one node; errors come out typed, and the node's health is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from kvorum.client.health import Health
from kvorum.client.pool import Link, Pool
from kvorum.core import limits
from kvorum.core.errors import ChecksumError, KvorumError, UnavailableError
from kvorum.placement import Member
from kvorum.v1 import common_pb2
from kvorum.v1.status import from_rpc_error

CALL_S_MIN: Final = 0.001


class _Answer(Protocol):
    @property
    def answerer(self) -> common_pb2.Answerer:
        """Who answers."""


AnswerT = TypeVar("AnswerT", bound=_Answer)
ResponseT = TypeVar("ResponseT")
RequestT = TypeVar("RequestT", bound=Message)


class Caller:
    """Calls nodes.

    Attributes:
        health: what was learned about each node.
        pool: the channels.
        metadata: credentials of every call.
        on_error: is told of every error, to learn when what the client knows is out of date.
    """

    def __init__(
        self,
        pool: Pool,
        health: Health,
        metadata: Sequence[tuple[str, str]],
        on_error: Callable[[KvorumError], None],
    ) -> None:
        self.pool = pool
        self.health = health
        self.metadata = tuple(metadata)
        self.on_error = on_error

    def link(self, member: Member) -> Link:
        """Return the channels to a node."""
        return self.pool.link(member.address)

    async def unary(
        self,
        member: Member,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, AnswerT],
        request: RequestT,
        timeout_s: float,
    ) -> AnswerT:
        """Call a method of a node.

        Raises:
            KvorumError: what the node answered, or what became of the call.
        """
        try:
            answer = await self._call(member.name, method, request, timeout_s, wait_for_ready=False)
            self.health.answered(member.name, answer.answerer)
        except KvorumError as error:
            raise self.failed(member.name, error) from error
        return answer

    async def anonymous(
        self,
        node: str,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float,
        *,
        wait_for_ready: bool = False,
    ) -> ResponseT:
        """Call a method of a node without a look at its health.

        Raises:
            KvorumError: what the node answered, or what became of the call.
        """
        return await self._call(node, method, request, timeout_s, wait_for_ready=wait_for_ready)

    async def _call(
        self,
        node: str,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float,
        *,
        wait_for_ready: bool,
    ) -> ResponseT:
        try:
            answer: ResponseT | None = await method(
                request,
                timeout=max(timeout_s, CALL_S_MIN),
                metadata=self.metadata,
                wait_for_ready=wait_for_ready,
            )
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, node) from error
        except asyncio.CancelledError as error:
            raise_if_cancelled()
            raise UnavailableError(f"the channel to {node} was closed") from error
        if answer is None:  # what gRPC makes of a message that cannot be parsed
            raise ChecksumError(f"{node} sent what is no message", field="response")
        return answer

    def failed(self, node: str, error: KvorumError) -> KvorumError:
        """Count a failed call; return the error."""
        self.health.failed(node, error, time.monotonic())
        self.on_error(error)
        return error


def raise_if_cancelled() -> None:
    """Go on being cancelled, if that is what happened.

    gRPC also raises `CancelledError` where a channel was closed under a call. That is a failed
    call like any other: taken for a cancellation it would end a caller that nobody cancelled.

    Raises:
        CancelledError: somebody cancelled the task that runs.
    """
    task = asyncio.current_task()
    if task is None or task.cancelling():
        raise asyncio.CancelledError


def request_context(map_digest: bytes) -> common_pb2.RequestContext:
    """Return what every request says about its caller."""
    return common_pb2.RequestContext(
        protocol_version=limits.PROTOCOL_VERSION, map_digest=map_digest
    )


def namespace_ref(name: str, fingerprint_digest: bytes) -> common_pb2.NamespaceRef:
    """Return a namespace as requests name it."""
    return common_pb2.NamespaceRef(name=name, fingerprint_digest=fingerprint_digest)
