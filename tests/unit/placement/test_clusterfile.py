"""ClusterFile: what is written is read back, the digest is exact, contradictions are refused."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError, TooLargeError
from kvorum.core.fingerprint import DTYPE_BYTES, LAYOUTS, Fingerprint
from kvorum.placement import (
    ClusterFile,
    ClusterMap,
    Member,
    NamespaceSpec,
    SlotMap,
    Tenant,
    apply,
    plan,
)

SECRET, PEER, ADMIN = bytes(range(32)), "peer-token-of-the-tests", "admin-token-of-the-tests"
LOCAL = ClusterFile.local(3, 2, range(7000, 7006), SECRET, PEER, ADMIN)
NAMES = st.text("abz019._-", min_size=1, max_size=12)
TOKENS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=16, max_size=40)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
AMOUNTS = st.integers(0, 2**63 - 1)


def token_hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def fingerprints() -> st.SearchStrategy[Fingerprint]:
    counts = st.integers(1, 2**32 - 1)
    return st.builds(
        Fingerprint,
        model=TEXTS, weights_revision=TEXTS, tokenizer=TEXTS, adapter=TEXTS, rope=TEXTS,
        codec_class=TEXTS, kv_dtype=st.sampled_from(sorted(DTYPE_BYTES)),
        layout=st.sampled_from(LAYOUTS), layers=counts, kv_heads=counts, head_size=counts,
        tp_size=st.just(1), pp_size=st.just(1), cp_size=st.integers(1, 1024),
        block_tokens=st.integers(1, 128).map(lambda n: n * 16),
    )  # fmt: skip


@st.composite
def cluster_files(draw: st.DrawFn) -> ClusterFile:
    zones = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    shards = draw(st.integers(1, 3))
    members = tuple(
        Member(f"m-{z}-{shard}", zone, shard, f"10.{z}.{shard}.1:{draw(st.integers(1, 65535))}")
        for z, zone in enumerate(zones)
        for shard in range(shards)
    )
    slots = SlotMap.even(1)
    slots = apply(slots, plan(slots, range(shards), {0: draw(st.integers(1, 5))}))
    tenants = tuple(
        Tenant(name, token_hash(name)) for name in draw(st.lists(NAMES, max_size=3, unique=True))
    )
    owners = st.sampled_from([t.name for t in tenants] or ["default"])
    namespaces = draw(
        st.lists(
            st.builds(
                NamespaceSpec, owners, NAMES, fingerprints(),
                st.integers(1, min(3, len(zones))), AMOUNTS, AMOUNTS, AMOUNTS,
            ),
            max_size=2,
            unique_by=lambda spec: (spec.tenant, spec.name),
        )
    )  # fmt: skip
    peer_token, admin_token = draw(st.lists(TOKENS, min_size=2, max_size=2, unique=True))
    return ClusterFile(
        ClusterMap(draw(NAMES), draw(st.integers(1, 2**63 - 1)), members, slots),
        draw(st.binary(min_size=32, max_size=32)),
        peer_token,
        admin_token,
        tenants,
        tuple(namespaces),
    )


@settings(max_examples=60)
@given(cluster_files())
def test_what_is_rendered_parses_to_the_same_value(file: ClusterFile) -> None:
    again = ClusterFile.parse(file.render())
    assert again == file
    assert again.digest() == file.digest()


def test_a_local_cluster_is_open_on_loopback_and_named_by_zone_and_shard() -> None:
    assert [(m.name, m.zone, m.shard, m.address) for m in LOCAL.map.members] == [
        ("kvorum-a-0", "a", 0, "127.0.0.1:7000"),
        ("kvorum-a-1", "a", 1, "127.0.0.1:7001"),
        ("kvorum-b-0", "b", 0, "127.0.0.1:7002"),
        ("kvorum-b-1", "b", 1, "127.0.0.1:7003"),
        ("kvorum-c-0", "c", 0, "127.0.0.1:7004"),
        ("kvorum-c-1", "c", 1, "127.0.0.1:7005"),
    ]
    assert LOCAL.map.slots == SlotMap.even(2)
    assert LOCAL.is_open
    LOCAL.check_exposure(tls=False)


@pytest.mark.parametrize(
    ("zones", "shards", "ports", "field"),
    [
        (0, 1, (), "zones"),
        (17, 1, range(1, 18), "zones"),
        (1, 0, (), "shards"),
        (1, 1025, range(1, 1026), "shards"),
        (3, 1, (1, 2), "ports"),
        (3, 1, (1, 2, 3, 4), "ports"),
        (1, 1, (0,), "member.address"),
        (2, 1, (7, 7), "members[1].address"),
    ],
)
def test_an_impossible_local_cluster_is_refused(
    zones: int, shards: int, ports: tuple[int, ...], field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ClusterFile.local(zones, shards, ports, SECRET, PEER, ADMIN)
    assert caught.value.field == field
    assert caught.value.limit


FINGERPRINT = Fingerprint(
    model="m", weights_revision="r", tokenizer="t", adapter="none", kv_dtype="float16",
    layout="LKHTD", layers=2, kv_heads=2, head_size=8, rope="none", tp_size=1, pp_size=1,
    cp_size=1, block_tokens=16, codec_class="lossless",
)  # fmt: skip
ACME, OTHER = Tenant("acme", token_hash("one")), Tenant("other", token_hash("two"))
CHAT, CODE = (NamespaceSpec("acme", name, FINGERPRINT) for name in ("chat", "code"))
FULL = replace(LOCAL, tenants=(ACME, OTHER), namespaces=(CHAT, CODE))


def test_the_digest_changes_with_everything_that_members_must_agree_on() -> None:
    variants = [
        FULL,
        replace(FULL, map=replace(FULL.map, epoch=2)),
        replace(FULL, key_secret=bytes(32)),
        replace(FULL, tenants=(ACME,)),
        replace(FULL, tenants=(ACME, replace(OTHER, name="another"))),
        replace(FULL, tenants=(ACME, replace(OTHER, token_sha256=token_hash("three")))),
        replace(FULL, namespaces=(CHAT,)),
        *(
            replace(FULL, namespaces=(CHAT, changed))
            for changed in (
                replace(CODE, tenant="other"),
                replace(CODE, name="cod"),
                replace(CODE, fingerprint=replace(FINGERPRINT, layers=3)),
                replace(CODE, replicas=3),
                replace(CODE, ttl_ms=1),
                replace(CODE, idle_ttl_ms=1),
                replace(CODE, quota_bytes=1),
            )
        ),
    ]
    assert len({variant.digest() for variant in variants}) == len(variants)
    assert {len(variant.digest()) for variant in variants} == {32}


def test_order_and_tokens_do_not_change_the_digest() -> None:
    same = replace(
        FULL,
        map=replace(FULL.map, members=FULL.map.members[::-1]),
        tenants=(OTHER, ACME),
        namespaces=(CODE, CHAT),
        peer_token=PEER[::-1],
        admin_token=ADMIN[::-1],
    )
    assert same.digest() == FULL.digest()


def test_secrets_are_neither_shown_nor_told() -> None:
    shown = repr(FULL)
    assert PEER not in shown
    assert ADMIN not in shown
    assert repr(SECRET) not in shown
    with pytest.raises(InvalidArgumentError) as caught:
        replace(FULL, peer_token=f"{PEER} and spaces")
    assert PEER not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"key_secret": bytes(31)}, "secrets.key_secret", id="short secret"),
        pytest.param({"key_secret": "k" * 32}, "secrets.key_secret", id="text secret"),
        pytest.param({"peer_token": "short"}, "secrets.peer_token", id="short peer"),
        pytest.param({"peer_token": "p" * 513}, "secrets.peer_token", id="long peer"),
        pytest.param(
            {"peer_token": "wïth-umlaut-and-long"}, "secrets.peer_token", id="non-ascii peer"
        ),
        pytest.param(
            {"admin_token": "line\nbreak-and-so-on"}, "secrets.admin_token", id="newline admin"
        ),
        pytest.param({"admin_token": None}, "secrets.admin_token", id="no admin"),
        pytest.param({"admin_token": PEER}, "secrets.admin_token", id="admin is peer"),
        pytest.param(
            {"tenants": (ACME, replace(OTHER, name="acme"))}, "tenants[1].name", id="tenant twice"
        ),
        pytest.param(
            {"tenants": (ACME, replace(ACME, name="twin"))},
            "tenants.token_sha256",
            id="token twice",
        ),
        pytest.param(
            {"tenants": (ACME, Tenant("p", token_hash(PEER)))},
            "tenants.token_sha256",
            id="tenant with peer token",
        ),
        pytest.param({"namespaces": (CHAT, CHAT)}, "namespaces[1].name", id="namespace twice"),
        pytest.param(
            {"namespaces": (CHAT, replace(CODE, tenant="no"))},
            "namespaces[1].tenant",
            id="unknown tenant",
        ),
        pytest.param(
            {"tenants": (), "namespaces": (CHAT,)}, "namespaces[0].tenant", id="open with tenant"
        ),
    ],
)
def test_contradictions_are_refused_by_name(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        replace(FULL, **changes)  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.field == field
    assert caught.value.limit


def test_a_namespace_cannot_have_more_replicas_than_there_are_zones() -> None:
    two_zones = ClusterFile.local(2, 1, (1, 2), SECRET, PEER, ADMIN)
    with pytest.raises(InvalidArgumentError) as caught:
        replace(two_zones, namespaces=(NamespaceSpec("default", "chat", FINGERPRINT, 3),))
    assert (caught.value.field, caught.value.limit) == (
        "namespaces[0].replicas",
        "2, one for each zone",
    )


def test_tenants_and_namespaces_are_bounded() -> None:
    tenants = tuple(Tenant(f"t-{i}", token_hash(str(i))) for i in range(limits.TENANTS_MAX + 1))
    with pytest.raises(TooLargeError) as caught:
        replace(FULL, tenants=tenants, namespaces=())
    assert (caught.value.field, caught.value.limit) == ("tenants", "1024 tenants")
    specs = tuple(replace(CHAT, name=f"n-{i}") for i in range(limits.NAMESPACES_MAX + 1))
    with pytest.raises(TooLargeError) as caught:
        replace(FULL, namespaces=specs)
    assert (caught.value.field, caught.value.limit) == ("namespaces", "1024 namespaces")


@pytest.mark.parametrize("address", ["10.0.0.1:7000", "0.0.0.0:7000", "host:7000", "[::]:7000"])
def test_nothing_listens_beyond_the_machine_without_tls(address: str) -> None:
    member = replace(LOCAL.map.members[0], address=address)
    exposed = replace(LOCAL, map=replace(LOCAL.map, members=(member, *LOCAL.map.members[1:])))
    exposed.check_exposure(tls=True)
    with pytest.raises(InvalidArgumentError) as caught:
        exposed.check_exposure(tls=False)
    assert (caught.value.field, caught.value.limit) == (
        "members.address",
        "a loopback address, or TLS",
    )
