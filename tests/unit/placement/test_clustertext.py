"""The cluster file as an operator writes it: defaults, and errors that name the line's key."""

from __future__ import annotations

import pytest

from kvorum.core.errors import InvalidArgumentError
from kvorum.placement import ClusterFile, SlotMap

BY_HAND = """\
format = 1

[cluster]
name = "prod"
epoch = 3

[secrets]
key_secret = "000102030405060708090A0B0C0D0E0F000102030405060708090a0b0c0d0e0f"
peer_token = "peer-token-of-the-tests"
admin_token = "admin-token-of-the-tests"

[[members]]
name = "n0"
zone = "a"
shard = 0
address = "127.0.0.1:7000"

[[members]]
name = "n1"
zone = "b"
shard = 0
address = "127.0.0.1:7001"

[[members]]
name = "n2"
zone = "a"
shard = 1
address = "127.0.0.1:7002"

[[tenants]]
name = "acme"
token_sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

[[namespaces]]
tenant = "acme"
name = "chat"
ttl_ms = 60000
[namespaces.fingerprint]
model = "m"
weights_revision = "r"
tokenizer = "t"
adapter = "none"
kv_dtype = "float16"
layout = "LKHTD"
layers = 2
kv_heads = 2
head_size = 8
rope = "none"
tp_size = 1
pp_size = 1
cp_size = 1
block_tokens = 16
codec_class = "lossless"
"""


def test_what_is_left_out_takes_its_default() -> None:
    file = ClusterFile.parse(BY_HAND)
    assert file.map.slots == SlotMap.even(2)
    assert file.map.epoch == 3
    assert file.key_secret == bytes(range(16)) * 2
    (spec,) = file.namespaces
    assert spec.policy() == {
        "replicas": 2,
        "ttl_ms": 60_000,
        "idle_ttl_ms": 0,
        "quota_bytes": 0,
    }
    assert spec.fingerprint.model == "m"


def test_one_zone_has_one_replica_by_default() -> None:
    file = ClusterFile.parse(BY_HAND.replace('zone = "b"\nshard = 0', 'zone = "a"\nshard = 2'))
    assert file.map.zones == ("a",)
    assert file.namespaces[0].replicas == 1


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("format = 1", "format = 2", "format"),
        ("format = 1\n", "", "format"),
        ("format = 1", "format = 1\nextra = 1", "extra"),
        ("epoch = 3", 'epoch = "3"', "cluster.epoch"),
        ("epoch = 3", "epoch = -3", "cluster.epoch"),
        ("epoch = 3", "", "cluster.epoch"),
        ("epoch = 3", "epoch = 3\nepock = 3", "cluster.epock"),
        ("epoch = 3", "epoch = 3\nslots = 1", "cluster.slots"),
        ("epoch = 3", "epoch = 3\nslots = [{ count = 16384 }]", "cluster.slots[0].shard"),
        ("epoch = 3", "epoch = 3\nslots = [{ count = 1, shard = 0 }]", "slots"),
        (
            "epoch = 3",
            "epoch = 3\nslots = [{ count = 16384, shard = 0, x = 1 }]",
            "cluster.slots[0].x",
        ),
        ('name = "prod"', 'name = "Prod"', "cluster.name"),
        ("0001020304", "01020304", "secrets.key_secret"),
        ("0001020304", "xx01020304", "secrets.key_secret"),
        ("peer_token =", "peer_tokem =", "secrets.peer_token"),
        ("[[tenants]]", 'spare = ""\n[[tenants]]', "members[2].spare"),
        ('zone = "b"', 'zone = "a"', "members[1].zone"),
        ('name = "n1"', 'name = "n0"', "members[1].name"),
        ('name = "n1"', 'name = "N1"', "members[1].name"),
        ("127.0.0.1:7001", "127.0.0.1:7000", "members[1].address"),
        ("127.0.0.1:7001", "127.0.0.1", "members[1].address"),
        ("shard = 1", "shard = 1024", "members[2].shard"),
        ("shard = 1", "shard = 2", "slots"),
        ("ba7816bf", "BA7816BF", "tenants[0].token_sha256"),
        ('tenant = "acme"', 'tenant = "amce"', "namespaces[0].tenant"),
        ("ttl_ms", "ttl_s", "namespaces[0].ttl_s"),
        ("ttl_ms = 60000", "replicas = 3", "namespaces[0].replicas"),
        ("ttl_ms = 60000", "quota_bytes = -1", "namespaces[0].quota_bytes"),
        ("rope", "ropes", "namespaces[0].fingerprint.rope"),
        ('rope = "none"', 'rope = ""', "namespaces[0].fingerprint.rope"),
        ('rope = "none"', 'rope = "none"\nx = 1', "namespaces[0].fingerprint.x"),
        ("layers = 2", "layers = 2.0", "namespaces[0].fingerprint.layers"),
        ("layers = 2", f"layers = 0x1{'0' * 5000}", "namespaces[0].fingerprint.layers"),
        ("[namespaces.fingerprint]", "[namespaces.f]", "namespaces[0].fingerprint"),
    ],
)
def test_an_error_names_the_key(old: str, new: str, field: str) -> None:
    assert old in BY_HAND
    with pytest.raises(InvalidArgumentError) as caught:
        ClusterFile.parse(BY_HAND.replace(old, new, 1))
    assert caught.value.field == field
