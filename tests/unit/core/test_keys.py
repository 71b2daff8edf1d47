"""Keys: equal prefixes give equal keys, whatever holds the token ids and in every process."""

from __future__ import annotations

import array
import enum
import hashlib
import json
import os
import subprocess
import sys
from collections import UserList, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, TooLargeError
from kvorum.core.fingerprint import Fingerprint
from kvorum.core.keys import Chain, chain, root_key, slot_of, tenant_salt, token_array

VECTORS = Path(__file__).parents[2] / "vectors" / "keys.json"
FINGERPRINT = Fingerprint(
    model="m", weights_revision="r", tokenizer="t", adapter="none", kv_dtype="float16",
    layout="LKHTD", layers=2, kv_heads=2, head_size=8, rope="none", tp_size=1, pp_size=1,
    cp_size=1, block_tokens=16, codec_class="lossless",
)  # fmt: skip
SALT = bytes(range(32))
IDS = list(range(100))
EXPECTED = chain(FINGERPRINT, SALT, IDS)
INTEGERS = sorted(
    {np.dtype(order + code).str for code in np.typecodes["AllInteger"] for order in "<>"}
)


class Id(enum.IntEnum):
    ONE = 1


# ---------------------------------------------------------------- the same ids in other clothes


@pytest.mark.parametrize("code", INTEGERS)
def test_every_integer_type_and_byte_order_gives_the_same_keys(code: str) -> None:
    assert chain(FINGERPRINT, SALT, np.array(IDS, dtype=code)) == EXPECTED


@pytest.mark.parametrize(
    "tokens",
    [
        tuple(IDS),
        range(100),
        UserList(IDS),
        deque(IDS),
        array.array("H", IDS),
        [np.uint8(i) for i in IDS],
        [*IDS[:50], *np.arange(50, 100)],
        [0, Id.ONE, *IDS[2:]],
        np.arange(200)[::2] // 2,
        np.arange(99, -1, -1)[::-1],
        np.arange(1000, dtype=">u4").reshape(100, 10)[:, 0] // 10,
        np.arange(100, dtype=np.uint32).view(np.memmap)[:],
    ],
    ids=[
        "tuple", "range", "UserList", "deque", "array", "NumPy scalars", "mixed", "enum", "strided",
        "reversed", "big-endian column", "subclass",
    ],
)  # fmt: skip
def test_every_sequence_and_array_gives_the_same_keys(tokens: Any) -> None:
    assert chain(FINGERPRINT, SALT, tokens) == EXPECTED


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64", "uint32"])
def test_every_integer_tensor_gives_the_same_keys(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    tokens = torch.tensor(IDS, dtype=getattr(torch, name))
    assert chain(FINGERPRINT, SALT, tokens) == EXPECTED
    assert chain(FINGERPRINT, SALT, torch.stack([tokens, tokens])[1]) == EXPECTED
    assert chain(FINGERPRINT, SALT, torch.stack([tokens, tokens], dim=1)[:, 0]) == EXPECTED


def test_eight_fresh_processes_agree_whatever_their_hash_seed() -> None:
    code = (
        "import json, sys, numpy as np\n"
        "from kvorum.core.fingerprint import Fingerprint\n"
        "from kvorum.core.keys import chain, tenant_salt\n"
        "fields, kind = json.loads(sys.argv[1]), sys.argv[2]\n"
        "ids = list(range(100))\n"
        "tokens = np.array(ids, dtype=kind) if kind != 'list' else ids\n"
        "keys = chain(Fingerprint.from_mapping(fields), tenant_salt(bytes(32), 'acme'), tokens)\n"
        "print(keys.root.hex(), keys.keys[-1].hex(), keys.prompt_id.hex(), keys.slots())\n"
    )
    fields = {name: getattr(FINGERPRINT, name) for name in Fingerprint.__dataclass_fields__}
    kinds = ["list", "i1", "u1", ">i2", "u4", "i8", "u8", "list"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(fields), kind],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, kind in enumerate(kinds)
    ]
    answers = [process.communicate(timeout=60)[0] for process in processes]
    here = chain(FINGERPRINT, tenant_salt(bytes(32), "acme"), IDS)
    line = f"{here.root.hex()} {here.keys[-1].hex()} {here.prompt_id.hex()} {here.slots()}\n"
    assert answers == [line] * 8


# ---------------------------------------------------------------- what is no prompt


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param([-1], id="negative"),
        pytest.param(np.array([5, -1]), id="negative array"),
        pytest.param(np.array([-1], dtype=np.int8), id="negative int8"),
        pytest.param([2**32], id="over 32 bits"),
        pytest.param(np.array([2**32], dtype=np.uint64), id="over 32 bits array"),
        pytest.param([2**63], id="over 63 bits"),
        pytest.param([np.uint64(2**64 - 1)], id="NumPy over 63 bits"),
        pytest.param([1 << 20_000], id="vast"),
        pytest.param([1, 2.0], id="float"),
        pytest.param([1, 2.5], id="fraction"),
        pytest.param(np.array([1.0]), id="float array"),
        pytest.param([True, False], id="bool"),
        pytest.param([1, np.True_], id="NumPy bool"),
        pytest.param(np.array([True]), id="bool array"),
        pytest.param([], id="empty"),
        pytest.param((), id="empty tuple"),
        pytest.param(range(0), id="empty range"),
        pytest.param(np.array([], dtype=np.int64), id="empty array"),
        pytest.param([[1, 2]], id="nested"),
        pytest.param(np.array([[1, 2]]), id="two dimensions"),
        pytest.param(np.array(1), id="no dimension"),
        pytest.param(np.int64(1), id="scalar"),
        pytest.param(1, id="int"),
        pytest.param("12", id="str"),
        pytest.param(b"12", id="bytes"),
        pytest.param(bytearray(b"12"), id="bytearray"),
        pytest.param(memoryview(b"12"), id="memoryview"),
        pytest.param(["1"], id="list of str"),
        pytest.param(np.array(["1"]), id="array of str"),
        pytest.param(np.array([1, None]), id="array of objects"),
        pytest.param(np.array([1], dtype="m8[s]"), id="times"),
        pytest.param([None], id="list of None"),
        pytest.param(None, id="None"),
        pytest.param({1, 2}, id="set"),
        pytest.param({1: 2}, id="dict"),
        pytest.param(iter([1]), id="iterator"),
        pytest.param(np.ma.MaskedArray([1, -1], [False, True]), id="masked"),
    ],
)
def test_what_is_no_prompt_is_refused_by_name(tokens: Any) -> None:
    for use in (token_array, lambda bad: chain(FINGERPRINT, SALT, bad)):
        with pytest.raises(InvalidArgumentError) as caught:
            use(tokens)
        assert caught.value.field == "tokens"
        assert caught.value.limit
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("make", ["[0.5]", "[True]", "[[1]]", "[]", "1", "[-1]"])
def test_tensors_that_are_no_prompt_are_refused_by_name(make: str) -> None:
    torch: Any = pytest.importorskip("torch")
    with pytest.raises(InvalidArgumentError) as caught:
        token_array(torch.tensor(json.loads(make.replace("True", "true"))))
    assert caught.value.field == "tokens"


def test_a_tensor_that_numpy_cannot_read_is_refused_by_name() -> None:
    torch: Any = pytest.importorskip("torch")
    for tensor in (torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3, device="meta")):
        with pytest.raises(InvalidArgumentError) as caught:
            token_array(tensor)
        assert caught.value.field == "tokens"


@pytest.mark.parametrize(
    "tokens", [range(limits.PROMPT_TOKENS_MAX + 1), range(2**40), range(2**70)]
)
def test_a_prompt_too_long_is_refused_before_it_is_walked(tokens: range) -> None:
    with pytest.raises(TooLargeError) as caught:
        token_array(tokens)
    assert (caught.value.field, caught.value.limit) == ("tokens", "1048576 tokens")


def test_an_array_too_long_is_refused() -> None:
    with pytest.raises(TooLargeError) as caught:
        token_array(np.broadcast_to(np.int32(1), (2**40,)))
    assert (caught.value.field, caught.value.limit) == ("tokens", "1048576 tokens")


def test_the_longest_prompt_and_the_greatest_id_are_accepted() -> None:
    assert token_array(np.zeros(limits.PROMPT_TOKENS_MAX, dtype=np.int8)).size == 2**20
    assert token_array([0, 2**32 - 1]).tobytes() == b"\0\0\0\0\xff\xff\xff\xff"


# ---------------------------------------------------------------- the chain


def test_the_vectors_were_made_by_their_script() -> None:
    script = VECTORS.with_name("make_keys.py")
    subprocess.run([sys.executable, str(script), "--check"], check=True, timeout=60)


@pytest.mark.parametrize(
    "vector", json.loads(VECTORS.read_text(encoding="ascii")), ids=lambda vector: vector["name"]
)
def test_keys_equal_those_of_an_independent_reading_of_the_document(vector: dict[str, Any]) -> None:
    fingerprint = Fingerprint.from_mapping(vector["fingerprint"])
    assert fingerprint.canonical().hex() == vector["canonical"]
    assert fingerprint.digest().hex() == vector["digest"]
    salt = tenant_salt(bytes.fromhex(vector["cluster_secret"]), vector["tenant"])
    assert salt.hex() == vector["salt"]
    given_as = vector["tokens"]
    if isinstance(given_as, dict):
        start, step, count = given_as["start"], given_as["step"], given_as["count"]
        given_as = [(start + step * i) % 2**32 for i in range(count)]
    keys = chain(fingerprint, salt, given_as)
    assert keys.root.hex() == vector["root"] == root_key(fingerprint, salt).hex()
    assert [key.hex() for key in keys.keys] == vector["keys"]
    assert keys.prompt_id.hex() == vector["prompt_id"]
    assert keys.blocks_per_segment == vector["blocks_per_segment"]
    assert keys.slots() == vector["slots"]
    assert (keys.tokens, keys.block_tokens) == (len(given_as), fingerprint.block_tokens)


TOKEN_LISTS = st.lists(st.integers(0, limits.TOKEN_ID_MAX), min_size=1, max_size=100)


@given(TOKEN_LISTS, TOKEN_LISTS)
def test_keys_agree_exactly_as_far_as_the_prompts_do(one: list[int], two: list[int]) -> None:
    a, b = (chain(FINGERPRINT, SALT, [*IDS[:20], *ids]).keys for ids in (one, two))
    whole_one, whole_two = [*IDS[:20], *one], [*IDS[:20], *two]
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        end = (index + 1) * 16
        assert (left == right) == (whole_one[:end] == whole_two[:end])


@given(TOKEN_LISTS)
def test_a_longer_prompt_continues_the_chain(ids: list[int]) -> None:
    short = chain(FINGERPRINT, SALT, ids)
    long = chain(FINGERPRINT, SALT, [*ids, *IDS])
    assert long.keys[: len(short.keys)] == short.keys
    assert [long.parent(i) for i in range(len(long.keys))] == [long.root, *long.keys[:-1]]


@settings(max_examples=25)
@given(st.integers(1, 128).map(lambda n: n * 16), st.integers(1, 6000))
def test_blocks_of_a_segment_share_the_slot_of_its_first_block(size: int, count: int) -> None:
    fingerprint = Fingerprint.from_mapping(
        {name: getattr(FINGERPRINT, name) for name in Fingerprint.__dataclass_fields__}
        | {"block_tokens": size}
    )
    keys = chain(fingerprint, SALT, range(count))
    segment = 2048 // size
    assert len(keys.keys) == count // size
    for index, slot in enumerate(keys.slots()):
        first = keys.keys[index // segment * segment]
        assert slot == int.from_bytes(first[:2], "big") >> 2
        assert slot == keys.slot(index)
        assert slot < limits.SLOTS


def test_slots_are_the_first_fourteen_bits() -> None:
    assert slot_of(b"\xff\xff" + bytes(62)) == 16_383
    assert slot_of(b"\x00\x03" + bytes(62)) == 0
    assert slot_of(b"\x00\x04" + bytes(62)) == 1
    assert slot_of(b"\x80\x00" + bytes(62)) == 8192


def test_a_prompt_shorter_than_a_block_has_no_key_and_is_named_by_its_root() -> None:
    keys = chain(FINGERPRINT, SALT, IDS[:15])
    assert keys == Chain(root_key(FINGERPRINT, SALT), (), 16, 15)
    assert keys.prompt_id == keys.root
    assert keys.slots() == []


# ---------------------------------------------------------------- salts


def test_tenants_and_clusters_have_salts_of_their_own() -> None:
    secrets, tenants = [bytes(32), b"\1" * 32], ["a", "b", "a.b", "default"]
    salts = {tenant_salt(secret, tenant) for secret in secrets for tenant in tenants}
    assert len(salts) == 8
    assert {len(salt) for salt in salts} == {32}
    spelled_out = b"kvorum.tenant-salt.v1\0" + bytes(32) + b"\0" + b"a"
    assert tenant_salt(bytes(32), "a") == hashlib.sha3_256(spelled_out).digest()
    assert chain(FINGERPRINT, bytes(32), IDS).keys != EXPECTED.keys


@pytest.mark.parametrize("salt", [b"", bytes(31), bytes(33), "s" * 32, None, bytearray(32)])
def test_a_salt_is_32_bytes(salt: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        chain(FINGERPRINT, salt, IDS)
    assert (caught.value.field, caught.value.limit) == ("salt", "32 bytes")


@pytest.mark.parametrize(
    ("secret", "tenant", "field"),
    [
        (bytes(31), "a", "cluster_secret"),
        ("s" * 32, "a", "cluster_secret"),
        (bytes(32), "", "tenant"),
        (bytes(32), "a\0b", "tenant"),
        (bytes(32), None, "tenant"),
    ],
)
def test_a_salt_is_made_of_a_secret_and_a_name(secret: Any, tenant: Any, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        tenant_salt(secret, tenant)
    assert caught.value.field == field
    assert "ssss" not in str(caught.value)
