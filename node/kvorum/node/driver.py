"""Driver: where the pure engine meets its arena, the clock and the pipes.

Everything that happens to blocks goes through `tell`, on the event loop's thread and without a
pause, so that no two events ever interleave.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kvorum.core.errors import InternalError, NamespaceNotFoundError
from kvorum.node.arena import Arena
from kvorum.node.clock import Clock
from kvorum.node.engine import Engine
from kvorum.node.engine.events import (
    Effect,
    Event,
    Extent,
    NamespaceId,
    NamespaceRecord,
    Snapshot,
)

ReplyT = TypeVar("ReplyT")


class Driver:
    """The engine with what it acts on.

    Args:
        engine: decides.
        arena: the bytes that the engine's extents name.
        clock: time.

    Attributes:
        engine: for questions about its state; events go through `tell`.
        clock: time.
        on_effect: carries out what the engine asks for; set before the first event that asks.
    """

    def __init__(self, engine: Engine, arena: Arena, clock: Clock) -> None:
        self.engine = engine
        self.clock = clock
        self.on_effect: Callable[[Effect], None] = _refuse
        self._arena = arena

    def tell(self, event: Event[ReplyT]) -> ReplyT:
        """Tell the engine what happened, carry out what it asks for, and return its reply.

        Raises:
            KvorumError: the engine refuses the event.
        """
        reply, effects = self.engine.handle(event, self.clock.now_ms())
        for effect in effects:
            self.on_effect(effect)
        return reply

    def view(self, extent: Extent) -> memoryview:
        """Return the bytes of an extent, without a copy."""
        return self._arena.view(extent.offset, extent.size)

    def namespace(self, identity: NamespaceId) -> NamespaceRecord:
        """Return a namespace.

        Raises:
            NamespaceNotFoundError: there is none of that name, or it was deleted.
        """
        record = self.engine.namespace(identity)
        if record is None or record.deleted:
            raise NamespaceNotFoundError(
                f"there is no namespace {identity.name}",
                field="namespace.name",
                limit="a namespace of the caller's tenant",
            )
        return record

    def snapshot(self, namespace: NamespaceId, key: bytes) -> Snapshot | None:
        """Open a read of a whole block for a peer, until `EndRead`; None if it is not here.

        Raises:
            OverloadedError: too many reads are open.
        """
        return self.engine.snapshot(namespace, key, self.clock.now_ms())


def _refuse(effect: Effect) -> None:
    raise InternalError(f"nobody carries out {type(effect).__name__}")
