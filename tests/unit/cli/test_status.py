"""Goal: the report adds up, judges health by shards, and fits the terminal."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kvorum.cli.sizes import format_size
from kvorum.cli.status_report import Health, health, report
from kvorum.cli.status_view import _duration, plain, tables
from kvorum.cli.tables import Table
from kvorum.client import NamespaceUse, NodeInfo, NodeState, NodeStatus, PeerLag, Topology
from kvorum.core.errors import UnavailableError

GIB = 1 << 30


def node(zone: str, shard: int, **values: object) -> NodeStatus:
    info = NodeInfo(f"kvorum-{zone}-{shard}", zone, shard, "127.0.0.1:1", NodeState.UP, 7)
    full: dict[str, object] = {
        "arena_bytes": GIB,
        "used_bytes": GIB // 4,
        "blocks": 10,
        "lookup_hits": 3,
        "lookup_misses": 1,
        "uptime_s": 5.0,
        "peers": (PeerLag("peer", "z", True, 2, 2 << 20, 1.5, 0),),
        "namespaces": (NamespaceUse("files", 10, GIB // 4, 3, 1),),
    }
    return NodeStatus(info=info, **{**full, **values})  # type: ignore[arg-type]


def dead(zone: str, shard: int) -> NodeStatus:
    return NodeStatus(info=node(zone, shard).info, error=UnavailableError("no answer"))


def draining(zone: str, shard: int) -> NodeStatus:
    whole = node(zone, shard)
    return replace(whole, info=replace(whole.info, state=NodeState.DRAINING))


def topology(nodes: list[NodeStatus]) -> Topology:
    infos = tuple(item.info for item in nodes)
    return Topology("local", 1, b"d" * 32, infos, {0: 8192, 1: 8192}, "kvorum-a-0")


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("a", 0), node("b", 0)], Health.OK),
        ([node("a", 0), dead("b", 0)], Health.DEGRADED),
        ([node("a", 0), draining("b", 0)], Health.DEGRADED),
        ([node("a", 0), dead("a", 1)], Health.DOWN),
        ([draining("a", 0)], Health.DOWN),
        ([], Health.DOWN),
    ],
)
def test_health_is_that_of_the_worst_shard(nodes: list[NodeStatus], expected: Health) -> None:
    assert health(nodes) is expected


def test_sums_add_up_and_are_json() -> None:
    nodes = [node(zone, shard) for zone in "ab" for shard in (0, 1)] + [dead("c", 0)]
    value = json.loads(json.dumps(report(topology(nodes), nodes)))
    assert value["health"] == "degraded"
    assert value["total"] == {
        "nodes": 5,
        "nodes_up": 4,
        "blocks": 40,
        "used_bytes": GIB,
        "arena_bytes": 4 * GIB,
        "fill": 0.25,
        "lookup_hits": 12,
        "lookup_misses": 4,
        "hit_ratio": 0.75,
    }
    for part in ("zones", "shards"):
        assert sum(item["blocks"] for item in value[part]) == 40
    assert value["namespaces"] == [
        {
            "name": "files",
            "blocks": 40,
            "used_bytes": GIB,
            "lookup_hits": 12,
            "lookup_misses": 4,
            "hit_ratio": 0.75,
        }
    ]
    (silent,) = [item for item in value["nodes"] if item["state"] == "down"]
    assert "no answer" in silent["error"]
    assert silent["hit_ratio"] is None


def test_text_has_a_line_for_every_node() -> None:
    nodes = [node("a", 0), dead("b", 0), draining("c", 0)]
    lines = plain(report(topology(nodes), nodes)).splitlines()
    assert lines[0].endswith("health degraded")
    (up,) = [line for line in lines if line.startswith("kvorum-a-0")]
    assert up.split()[4:8] == ["up", "5", "s", "25.0%"]
    assert up.endswith("1.5 s, 2.0 MiB")
    (down,) = [line for line in lines if line.startswith("kvorum-b-0")]
    assert down.split()[4:6] == ["down", "-"]


def test_a_cut_off_peer_shows() -> None:
    cut = node("a", 0, peers=(PeerLag("p", "b", False, 0, 0, 0.0, 0),))
    assert "b cut off" in plain(report(topology([cut]), [cut]))


def test_columns_go_until_a_table_fits() -> None:
    whole = tables(report(topology([node("a", 0)]), [node("a", 0)]))[0]
    narrow = whole.fitted(80, ("address", "arena", "memory"))
    assert "address" in whole.columns
    assert "address" not in narrow.columns
    assert narrow.rows[0][0] == "kvorum-a-0"
    assert len(narrow.rows[0]) == len(narrow.columns)
    assert whole.fitted(1_000, ("address",)) == whole


def test_plain_tables_align() -> None:
    table = Table("t", ("name", "count"), [("a", "1"), ("long name", "100")], left=("name",))
    assert table.plain() == "name       count\na              1\nlong name    100"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (512 << 20, "512.0 MiB"),
        (1 << 50, "1024.0 TiB"),
    ],
)
def test_sizes_are_binary(count: int, text: str) -> None:
    assert format_size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(59.9, "59 s"), (60, "1 min"), (7_200, "2 h"), (200_000, "2 d")]
)
def test_durations_have_one_unit(seconds: float, text: str) -> None:
    assert _duration(seconds) == text
