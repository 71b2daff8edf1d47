"""Goal: any file goes in and comes out as it was, or a typed answer says why not."""

from __future__ import annotations

import hashlib
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvorum.cli import LocalCluster
from tests.integration.cli.commands import MIB, SMALL, Kvorum, call, command, environment

TOKENS = ",".join(str(number) for number in range(48))


def write(path: Path, size: int, seed: int = 0) -> bytes:
    content = np.random.default_rng(seed).bytes(size)
    path.write_bytes(content)
    return content


@pytest.mark.parametrize("size", [0, 1, 5_000, 4 * MIB - 64, 4 * MIB - 63, 9 * MIB + 7])
def test_a_file_comes_back_as_it_was(kvorum: Kvorum, tmp_path: Path, size: int) -> None:
    content = write(tmp_path / "in", size)
    name = f"file of {size} bytes, ä"
    stored = kvorum("put", str(tmp_path / "in"), "--name", name, "--json")
    assert stored.code == 0, stored
    value = stored.value
    assert value["name"] == name
    assert (value["bytes"], value["stored"]) == (size, value["blocks"])
    assert value["sha256"] == hashlib.sha256(content).hexdigest()
    assert value["zones"]

    found = kvorum("lookup", name, "--json")
    assert found.code == 0, found
    assert found.value["found"] is True
    assert found.value["bytes"] == size
    assert found.value["blocks_found"] == found.value["blocks_total"] == value["blocks"]
    assert found.value["stored_bytes"] >= size
    assert set(found.value["zones"]) <= {"a", "b", "c"}

    read = kvorum("get", name, "-o", str(tmp_path / "out"), "--json")
    assert read.code == 0, read
    assert (tmp_path / "out").read_bytes() == content
    assert sum(read.value["bytes_by_zone"].values()) >= size


def test_a_file_larger_than_a_block_may_be(kvorum: Kvorum, tmp_path: Path) -> None:
    content = write(tmp_path / "in", 30 * MIB)
    assert kvorum("put", str(tmp_path / "in"), "--name", "large", "--replicas", "1").code == 0
    assert kvorum("get", "large", "-o", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out").read_bytes() == content


def test_pipes_work_both_ways(cluster: LocalCluster) -> None:
    stored = call("put", "-", "--name", "piped", endpoints=cluster.endpoints, stdin=b"\x00\xff")
    assert stored.code == 0, stored
    done = subprocess.run(
        command("get", "piped", "-o", "-"),
        capture_output=True,
        check=True,
        env=environment(cluster.endpoints),
    )
    assert done.stdout == b"\x00\xff"
    assert call("lookup", "piped", endpoints=cluster.endpoints).code == 0


def test_the_name_is_that_of_the_file_unless_told(kvorum: Kvorum, tmp_path: Path) -> None:
    write(tmp_path / "plain.txt", 10)
    assert kvorum("put", str(tmp_path / "plain.txt"), "--json").value["name"] == "plain.txt"


def test_a_file_that_does_not_fit_is_not_said_to_be_stored(kvorum: Kvorum, tmp_path: Path) -> None:
    write(tmp_path / "in", 72 * MIB)
    put = ("put", str(tmp_path / "in"), "--name", "too large", "--namespace", "roomy")
    refused = kvorum(*put, "--replicas", "3", "--json")
    assert refused.code == 4, refused
    assert refused.value["error"]["code"] == "ARENA_FULL"
    assert kvorum("lookup", "too large", "--namespace", "roomy").code == 3


def test_text_says_what_happened(kvorum: Kvorum, tmp_path: Path) -> None:
    write(tmp_path / "in", 2_048)
    stored = kvorum("put", str(tmp_path / "in"), "--name", "told")
    assert stored.out.startswith("stored told: 2.0 KiB in 1 block, acknowledged by zone ")
    again = kvorum("put", str(tmp_path / "in"), "--name", "told")
    assert again.out.startswith("already stored told: ")
    found = kvorum("lookup", "told")
    assert found.out.startswith("found told: 1 of 1 block, 2.1 KiB; zone ")
    read = kvorum("get", "told", "-o", str(tmp_path / "out"))
    assert (read.out, read.err) == ("", "read told: 2.0 KiB, verified\n")


def test_a_name_that_is_taken_needs_overwrite(kvorum: Kvorum, tmp_path: Path) -> None:
    old, new, out = tmp_path / "old", tmp_path / "new", tmp_path / "out"
    write(old, 100, seed=1)
    content = write(new, 6 * MIB, seed=2)
    assert kvorum("put", str(old), "--name", "taken").code == 0
    refused = kvorum("put", str(new), "--name", "taken", "--json")
    assert refused.code == 1
    assert refused.value["error"]["code"] == "CONFLICT"
    assert refused.value["error"]["field"] == "--name"
    assert kvorum("get", "taken", "-o", str(out)).code == 0
    assert out.read_bytes() == old.read_bytes()
    assert kvorum("put", str(new), "--name", "taken", "--overwrite").code == 0
    for _ in range(200):  # until the other replica has it too, a reader may see the old file
        assert kvorum("get", "taken", "-o", str(out)).code == 0
        if out.read_bytes() != old.read_bytes():
            break
    assert out.read_bytes() == content


def test_what_is_not_there_is_not_found(kvorum: Kvorum, tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    write(other, 100, seed=1)
    assert kvorum("put", str(other)).code == 0  # the namespace is there, and the name is not
    missed = kvorum("get", "never stored", "-o", str(out), "--json")
    assert missed.code == 3
    assert missed.value["error"]["reason"] == "NEVER_STORED"
    assert not out.exists()
    looked = kvorum("lookup", "never stored", "--json")
    assert looked.code == 3
    assert (looked.value["found"], looked.value["reason"]) == (False, "NEVER_STORED")
    line = kvorum("get", "never stored", "-o", str(out)).err
    assert line == "kvorum: NOT_FOUND: 0 of 1 block is there; reason: NEVER_STORED\n"


def test_a_namespace_that_is_not_there_is_not_found(kvorum: Kvorum, tmp_path: Path) -> None:
    missed = kvorum("get", "x", "--namespace", "no-such", "-o", str(tmp_path / "out"), "--json")
    assert missed.code == 3
    assert missed.value["error"]["code"] == "NAMESPACE_NOT_FOUND"
    looked = kvorum("lookup", "x", "--namespace", "no-such", "--json")
    assert looked.code == 3
    assert looked.value["reason"] == "NEVER_STORED"


def test_a_file_under_tokens_is_found_by_every_longer_list(kvorum: Kvorum, tmp_path: Path) -> None:
    content = write(tmp_path / "in", 1_000, seed=3)
    namespace = ("--namespace", "tokens-prefix")
    stored = kvorum("put", str(tmp_path / "in"), "--tokens", TOKENS, *namespace, "--json")
    assert stored.code == 0, stored
    assert (stored.value["tokens"], stored.value["blocks"]) == (48, 3)
    longer = tmp_path / "longer.npy"
    np.save(longer, np.arange(70))
    looked = kvorum("lookup", "--token-file", str(longer), *namespace, "--json")
    assert looked.code == 0, looked
    assert (looked.value["tokens_found"], looked.value["blocks_total"]) == (48, 4)
    assert looked.value["reason"] == "NEVER_STORED"
    out = tmp_path / "out"
    read = kvorum("get", "--token-file", str(longer), "-o", str(out), *namespace, "--json")
    assert read.code == 0, read
    assert (read.value["tokens"], read.value["tokens_found"]) == (70, 48)
    assert out.read_bytes() == content
    shorter = ",".join(TOKENS.split(",")[:32])
    part = kvorum("get", "--tokens", shorter, "-o", str(tmp_path / "no"), *namespace, "--json")
    assert part.code == 3
    assert not (tmp_path / "no").exists()
    assert kvorum("lookup", "--tokens", shorter, *namespace).code == 0


def test_blocks_of_tokens_never_change(kvorum: Kvorum, tmp_path: Path) -> None:
    write(tmp_path / "one", 100, seed=4)
    write(tmp_path / "two", 100, seed=5)
    namespace = ("--namespace", "tokens-fixed")
    first = ",".join(TOKENS.split(",")[:32])
    assert kvorum("put", str(tmp_path / "one"), "--tokens", first, *namespace).code == 0
    again = kvorum("put", str(tmp_path / "one"), "--tokens", first, *namespace, "--json")
    assert (again.code, again.value["already_stored"]) == (0, 2)
    for tokens in (first, TOKENS):
        other = kvorum("put", str(tmp_path / "two"), "--tokens", tokens, *namespace, "--json")
        assert (other.code, other.value["error"]["code"]) == (1, "CONFLICT")
    assert kvorum("get", "--tokens", TOKENS, "-o", str(tmp_path / "out"), *namespace).code == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "one").read_bytes()


@pytest.mark.parametrize(
    ("args", "code", "field"),
    [
        (["put", "{in}", "--tokens", "1,2,3"], "INVALID_ARGUMENT", "tokens"),
        (["put", "{in}", "--tokens", "1,-2"], "INVALID_ARGUMENT", "tokens"),
        (["put", "{in}", "--tokens", TOKENS, "--name", "x"], "INVALID_ARGUMENT", "--name"),
        (["put", "{in}", "--tokens", TOKENS, "--overwrite"], "INVALID_ARGUMENT", "--overwrite"),
        (["put", "{in}", "--name", ""], "INVALID_ARGUMENT", "name"),
        (["put", "{in}", "--name", "x" * 5_000], "TOO_LARGE", "name"),
        (["put", "{in}", "--namespace", "No Name"], "INVALID_ARGUMENT", "namespace"),
        (["put", "{in}.missing"], "FILE", "FILE"),
        (["put", "-"], "INVALID_ARGUMENT", "--name"),
        (["get", "-o", "{in}"], "INVALID_ARGUMENT", "NAME"),
        (["get", "x", "-o", "-"], "INVALID_ARGUMENT", "--output"),
        (["lookup"], "INVALID_ARGUMENT", "NAME"),
        (["lookup", "x", "--endpoint", "nonsense"], "INVALID_ARGUMENT", "endpoints[0]"),
    ],
)
def test_bad_input_is_refused_with_its_field(
    kvorum: Kvorum, tmp_path: Path, args: list[str], code: str, field: str
) -> None:
    write(tmp_path / "in", 10)
    words = [word.replace("{in}", str(tmp_path / "in")) for word in args]
    refused = kvorum(*words, "--json")
    assert refused.code == 2, refused
    error = refused.value["error"]
    assert (error["code"], error["field"]) == (code, field)
    assert refused.err == ""


@pytest.mark.parametrize("args", [["put", "{in}"], ["get", "x", "-o", "{out}"], ["lookup", "x"]])
def test_no_cluster_is_unavailable(here: Kvorum, tmp_path: Path, args: list[str]) -> None:
    write(tmp_path / "in", 10)
    words = [word.format(**{"in": tmp_path / "in", "out": tmp_path / "out"}) for word in args]
    failed = here(*words, "--endpoint", "127.0.0.1:1", "--timeout", "0.5", "--json")
    assert failed.code == 4
    assert failed.value["error"]["code"] == "UNAVAILABLE"
    assert failed.value["error"]["retryable"] is True
    assert "Traceback" not in failed.err
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_lost_zone_is_not_noticed(
    here: Kvorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = write(tmp_path / "in", 6 * MIB)
    with LocalCluster(SMALL) as cluster:
        monkeypatch.setenv("KVORUM_ENDPOINTS", ",".join(cluster.endpoints))
        put = here("put", str(tmp_path / "in"), "--name", "kept", "--replicas", "3")
        assert put.code == 0, put
        await_copies(here, 3)
        cluster.kill_zone("b")
        read = here("get", "kept", "-o", str(tmp_path / "out"))
    assert read.code == 0, read
    assert (tmp_path / "out").read_bytes() == content


def await_copies(here: Kvorum, zones: int) -> None:
    """Wait until every block of the file `kept` is in so many zones."""
    found: dict[str, Any] = {}
    for _ in range(200):
        found = here("lookup", "kept", "--json").value
        if list(found["zones"].values()) == [found["blocks_total"]] * zones:
            return
        time.sleep(0.05)
    raise AssertionError(f"not all blocks are in {zones} zones: {found}")
