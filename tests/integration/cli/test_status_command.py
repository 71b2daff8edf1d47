"""Goal: status tells the truth about a cluster, as JSON and as text, and never hangs on a loss."""

from __future__ import annotations

import json
import signal
import subprocess

import psutil

from kvorum.cli import LocalCluster
from tests.integration.cli.commands import MIB, SMALL, Kvorum, call, command, environment


def test_json_has_every_part(cluster: LocalCluster, kvorum: Kvorum) -> None:
    assert kvorum("put", "-", "--name", "seen", stdin=b"x" * MIB).code == 0
    assert kvorum("lookup", "seen").code == 0
    assert kvorum("lookup", "unseen").code == 3
    called = kvorum("status", "--json")
    assert called.code == 0, called
    value = called.value
    assert (value["cluster"], value["health"], value["epoch"]) == ("local", "ok", 1)
    assert [zone["zone"] for zone in value["zones"]] == ["a", "b", "c"]
    assert [(shard["shard"], shard["slots"]) for shard in value["shards"]] == [(0, 16_384)]
    assert {node["name"] for node in value["nodes"]} == {m.name for m in cluster.members}
    for node in value["nodes"]:
        assert node["state"] == "up"
        assert node["arena_bytes"] == SMALL.memory_bytes
        assert node["resident_bytes"] > 0
        assert {peer["zone"] for peer in node["replication"]} | {node["zone"]} == {"a", "b", "c"}
    total = value["total"]
    assert total["blocks"] >= 1
    assert total["used_bytes"] >= MIB
    assert total["lookup_hits"] >= 1
    assert total["lookup_misses"] >= 1
    assert total["hit_ratio"] == total["lookup_hits"] / (
        total["lookup_hits"] + total["lookup_misses"]
    )
    assert [use["name"] for use in value["namespaces"]] == ["files"]


def test_text_is_plain_where_nobody_watches(kvorum: Kvorum) -> None:
    called = kvorum("status")
    assert called.code == 0
    assert called.out.startswith("cluster local, epoch 1: 3 of 3 nodes up in 3 zones and 1 shard")
    assert "\x1b" not in called.out
    assert called.err == ""


def test_a_lost_and_a_hung_node_show() -> None:
    with LocalCluster(SMALL) as cluster:
        cluster.kill("kvorum-a-0")
        cluster.pause("kvorum-b-0")
        flags = ("status", "--json", "--timeout", "2")
        called = call(*flags, "--check", endpoints=cluster.endpoints)
        assert called.code == 1, called
        states = {node["name"]: node["state"] for node in called.value["nodes"]}
        assert states == {"kvorum-a-0": "down", "kvorum-b-0": "down", "kvorum-c-0": "up"}
        assert called.value["health"] == "degraded"
        assert call(*flags, endpoints=cluster.endpoints).code == 0


def test_watch_goes_on_until_ctrl_c(cluster: LocalCluster) -> None:
    process = subprocess.Popen(
        command("status", "--watch", "--interval", "0.1", "--json"),
        stdout=subprocess.PIPE,
        env=environment(cluster.endpoints),
    )
    try:
        assert process.stdout is not None
        for _ in range(2):
            assert json.loads(process.stdout.readline())["health"] == "ok"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_no_cluster_is_unavailable() -> None:
    called = call("status", "--endpoint", "127.0.0.1:1", "--timeout", "0.5")
    assert called.code == 4
    assert called.out == ""
    assert called.err.startswith("kvorum: UNAVAILABLE: ")
    assert called.err.count("\n") == 1


def test_ctrl_c_is_told_by_the_exit_code() -> None:
    with LocalCluster(SMALL) as cluster:
        for member in cluster.members:
            cluster.pause(member.name)
        process = subprocess.Popen(
            command("lookup", "x", "--timeout", "60", "--json"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(cluster.endpoints),
        )
        try:
            await_connection(process)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 130
    assert err == b"kvorum: interrupted\n"


def await_connection(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has a connection: it is past its imports and at work."""
    while not psutil.Process(process.pid).net_connections("tcp"):
        assert process.poll() is None
