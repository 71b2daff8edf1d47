"""What is secret stays out of the texts that end up in logs and tracebacks."""

from __future__ import annotations

from kvorum.client import Tls
from kvorum.client.view import View
from kvorum.placement import ClusterMap, Member, SlotMap
from tests.integration.support.values import OPAQUE


def test_a_view_keeps_the_salt_of_the_tenants_keys_to_itself() -> None:
    view = View(
        map=ClusterMap("c", 1, (Member("n", "a", 0, "127.0.0.1:1"),), SlotMap.even(1)),
        map_digest=bytes(32),
        zone="a",
        namespace="n",
        fingerprint=OPAQUE,
        fingerprint_digest=OPAQUE.digest(),
        salt=b"the salt of a tenant",
        replicas=1,
    )
    assert "the salt" not in repr(view)
    assert "namespace='n'" in repr(view)


def test_certificates_keep_their_key_to_themselves() -> None:
    assert "a key" not in repr(Tls(cert=b"a certificate", key=b"a key"))
