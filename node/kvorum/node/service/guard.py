"""Guard: what holds for every call of `kvorum.v1`, wrapped around each handler once.

It counts the call in, ends it at its deadline, and is the one place where an exception becomes a
gRPC status: Kvorum's own errors through `kvorum.v1.status`, anything else as a logged defect.

A call counts until its caller has the answer. A caller that stops reading keeps gRPC from sending
even the error, and gRPC keeps a frame for it: were it not counted, such frames could pile up. It
ends when the caller reads on, hangs up, or no longer answers pings.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from kvorum.core.errors import DeadlineError, InternalError, InvalidArgumentError, KvorumError
from kvorum.node.admission import Admission, Gate
from kvorum.v1 import status

_LOG: Final = logging.getLogger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Serve: TypeAlias = Callable[[Any, Context], Awaitable[Any]]

_Read: TypeAlias = Callable[[bytes], Any]

_PREFIX: Final = "/kvorum.v1."
_GET: Final = "/kvorum.v1.CacheService/Get"
_PUT: Final = "/kvorum.v1.CacheService/Put"
_LASTING: Final = frozenset({"/kvorum.v1.ReplicationService/Replicate"})
"""Calls that last as long as two members live; they watch over their own progress."""


@dataclass(frozen=True, slots=True)
class _Malformed:
    """Stands for a request that is no message of its type."""

    reason: str


class Guard(grpc.aio.ServerInterceptor):
    """Wraps every handler of `kvorum.v1`.

    Args:
        admission: counts calls.
        call_s_max: what a call may take when its caller sets no earlier deadline.
    """

    def __init__(self, admission: Admission, call_s_max: float) -> None:
        self._admission = admission
        self._call_s_max = call_s_max
        self._guarded: dict[str, _Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """Return the guarded handler of the method; each is built once."""
        method = handler_call_details.method
        guarded = self._guarded.get(method)
        if guarded is None:
            handler = await continuation(handler_call_details)
            if handler is None or not method.startswith(_PREFIX):
                return handler
            guarded = self._guarded[method] = self._wrap(handler, method)
        return guarded

    def _wrap(self, handler: _Handler, method: str) -> _Handler:
        kind = "_".join(
            "stream" if streaming else "unary"
            for streaming in (handler.request_streaming, handler.response_streaming)
        )
        serve: _Serve = getattr(handler, kind)
        gates = self._gates(method)

        async def guarded(request: Any, context: Context) -> Any:  # noqa: ANN401  # any message
            with ExitStack() as stack:
                try:
                    for gate in gates:
                        stack.enter_context(gate.enter())
                    async with asyncio.timeout(self._limit_s(method, context)):
                        _check_readable(request)
                        return await serve(request, context)
                except KvorumError as error:
                    await status.abort(context, error)
                except TimeoutError:
                    await status.abort(context, DeadlineError("the deadline passed"))
                except grpc.aio.InternalError as error:
                    # A message could not be sent because the caller is gone. That is no failure of
                    # the node; gRPC, told otherwise, logs a traceback for each such call.
                    raise asyncio.CancelledError from error
                except grpc.aio.BaseError:
                    raise  # gRPC's own: the call was aborted, or gRPC was misused
                except Exception:  # noqa: BLE001  # a defect ends its call, not the node
                    _LOG.exception("call failed: method=%s", method)
                    await status.abort(context, InternalError("the node failed; its log says how"))

        build = getattr(grpc, f"{kind}_rpc_method_handler")
        read = _strict if handler.request_streaming else _lenient
        wrapped: _Handler = build(
            guarded,
            request_deserializer=read(handler.request_deserializer or bytes),
            response_serializer=handler.response_serializer,
        )
        return wrapped

    def _gates(self, method: str) -> tuple[Gate, ...]:
        admission = self._admission
        if method in _LASTING:
            return ()
        own = {_GET: admission.gets, _PUT: admission.puts}.get(method)
        return (admission.calls,) if own is None else (admission.calls, own)

    def _limit_s(self, method: str, context: Context) -> float | None:
        remaining: float | None = context.time_remaining()
        if method in _LASTING:
            return remaining
        return self._call_s_max if remaining is None else min(remaining, self._call_s_max)


def _check_readable(request: object) -> None:
    if isinstance(request, _Malformed):
        raise _malformed(request.reason)


def _malformed(reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"not a message of this method: {reason}", field="request")


def _lenient(read: _Read) -> _Read:
    """Return `read`, but such that the guard, not gRPC, answers what cannot be read."""

    def lenient(data: bytes) -> object:
        try:
            return read(data)
        except DecodeError as error:
            return _Malformed(str(error))

    return lenient


def _strict(read: _Read) -> _Read:
    """Return `read`, but such that a stream that cannot be read ends in a typed error."""

    def strict(data: bytes) -> object:
        try:
            return read(data)
        except DecodeError as error:
            raise _malformed(str(error)) from error

    return strict
