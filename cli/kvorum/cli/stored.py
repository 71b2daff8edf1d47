"""Stored: what the store of a file came to."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvorum.cli.filechain import Record
from kvorum.client import StoreResult
from kvorum.core.errors import InternalError


@dataclass(slots=True)
class Stored:
    """What a store came to.

    Attributes:
        record: what was stored.
        blocks: blocks of the file.
        stored: blocks that were new.
        already_stored: blocks that were there already.
        zones: zones that acknowledged at least one block.
    """

    record: Record
    blocks: int = 0
    stored: int = 0
    already_stored: int = 0
    zones: set[str] = field(default_factory=set)

    def add(self, result: StoreResult, blocks: int) -> None:
        """Count one store of the client.

        Raises:
            KvorumError: a block was refused.
        """
        for error in result.errors:
            raise error
        if result.stored + result.already_stored != blocks:
            raise InternalError(f"a store of {blocks} blocks answered {result}")
        self.blocks += blocks
        self.stored += result.stored
        self.already_stored += result.already_stored
        self.zones.update(result.zones)
