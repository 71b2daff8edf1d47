"""Tenants and namespace specifications check every field and name it."""

from __future__ import annotations

from hashlib import sha256

import pytest

from kvorum.core.errors import InvalidArgumentError
from kvorum.core.fingerprint import Fingerprint
from kvorum.placement import NamespaceSpec, Tenant

TOKEN = sha256(b"a tenant's token").hexdigest()
FINGERPRINT = Fingerprint(
    model="m", weights_revision="r", tokenizer="t", adapter="none", kv_dtype="float16",
    layout="LKHTD", layers=2, kv_heads=2, head_size=8, rope="none", tp_size=1, pp_size=1,
    cp_size=1, block_tokens=16, codec_class="lossless",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "token", "field"),
    [
        ("", TOKEN, "tenant.name"),
        ("Acme", TOKEN, "tenant.name"),
        ("acme", TOKEN.upper(), "tenant.token_sha256"),
        ("acme", TOKEN[:-1], "tenant.token_sha256"),
        ("acme", TOKEN + "\n", "tenant.token_sha256"),
        ("acme", b"0" * 64, "tenant.token_sha256"),
    ],
)
def test_a_malformed_tenant_is_refused(name: str, token: str, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Tenant(name, token)
    assert caught.value.field == field
    assert caught.value.limit


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"tenant": "a/b"}, "namespace.tenant"),
        ({"name": ""}, "namespace.name"),
        ({"fingerprint": None}, "namespace.fingerprint"),
        ({"replicas": 0}, "namespace.replicas"),
        ({"replicas": 4}, "namespace.replicas"),
        ({"replicas": True}, "namespace.replicas"),
        ({"ttl_ms": -1}, "namespace.ttl_ms"),
        ({"idle_ttl_ms": 2**63}, "namespace.idle_ttl_ms"),
        ({"quota_bytes": 1.5}, "namespace.quota_bytes"),
    ],
)
def test_a_malformed_namespace_is_refused(changes: dict[str, object], field: str) -> None:
    whole = {"tenant": "acme", "name": "chat", "fingerprint": FINGERPRINT}
    with pytest.raises(InvalidArgumentError) as caught:
        NamespaceSpec(**(whole | changes))  # type: ignore[arg-type]  # wrong on purpose
    assert caught.value.field == field
    assert caught.value.limit


def test_the_policy_holds_every_field_that_is_no_name() -> None:
    spec = NamespaceSpec("acme", "chat", FINGERPRINT, 3, 1, 2, 4)
    assert spec.policy() == {"replicas": 3, "ttl_ms": 1, "idle_ttl_ms": 2, "quota_bytes": 4}
