"""Settings are checked when they are made, with the name and the limit in the error."""

from __future__ import annotations

import pytest

from kvorum.core.errors import InvalidArgumentError
from kvorum.node.engine import EngineSettings
from tests.unit.node.engine.prompts import PAGE


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("capacity_bytes", 0),
        ("capacity_bytes", PAGE + 1),
        ("capacity_bytes", -PAGE),
        ("capacity_bytes", float(PAGE)),
        ("capacity_bytes", True),
        ("eviction", "no-such-policy"),
        ("staged_bytes_max", 17 * PAGE),
        ("pinned_bytes_max", 17 * PAGE),
        ("staged_ttl_ms", 0),
        ("open_reads_max", 0),
        ("evictions_max", 0),
        ("tick_items_max", 0),
        ("history_blocks_max", -1),
    ],
)
def test_what_cannot_be_is_refused_by_name(setting: str, value: object) -> None:
    values: dict[str, object] = {"capacity_bytes": 16 * PAGE} | {setting: value}
    with pytest.raises(InvalidArgumentError) as caught:
        EngineSettings(**values)  # type: ignore[arg-type]
    assert caught.value.field == f"engine.{setting}"
    assert caught.value.limit


def test_what_is_not_set_follows_from_the_capacity() -> None:
    settings = EngineSettings(capacity_bytes=1 << 30)
    assert settings.staged_bytes_max + settings.pinned_bytes_max == settings.capacity_bytes
    assert settings.index_bytes_max == 64 << 20
    tiny = EngineSettings(capacity_bytes=PAGE)
    assert (tiny.staged_bytes_max, tiny.pinned_bytes_max) == (PAGE, PAGE)
