"""The arena of a simulated driver: what was last written to each granule, as a tag."""

from __future__ import annotations

from collections.abc import Iterator

from kvorum.node.engine.events import Extent
from tests.unit.node.engine.prompts import PAGE


class TaggedArena:
    """Bytes by granule, each the checksums of the part that was written there last."""

    def __init__(self) -> None:
        self._tags: dict[int, tuple[str, tuple[int, ...]]] = {}

    def write(self, extent: Extent, word: str) -> None:
        """Fill an extent as a writer of `word` would."""
        for granule in _granules(extent):
            self._tags[granule] = (word, extent.frame_crc32c)

    def holds(self, extent: Extent, word: str) -> bool:
        """Whether a reader of the extent gets the bytes of `word` with the extent's checksums."""
        want = (word, extent.frame_crc32c)
        return all(self._tags.get(granule) == want for granule in _granules(extent))


def _granules(extent: Extent) -> Iterator[int]:
    return iter(range(extent.offset // PAGE, -(-(extent.offset + extent.size) // PAGE)))
