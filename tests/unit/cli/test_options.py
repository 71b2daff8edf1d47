"""The flags of a connection."""

from __future__ import annotations

from kvorum.cli.options import Connection


def test_a_connection_keeps_its_token_to_itself() -> None:
    connection = Connection(
        endpoints=("127.0.0.1:1",),
        token="a-token-of-a-tenant",  # noqa: S106  # nobody's
        zone="a",
        timeout_s=1.0,
        tls_ca=None,
        tls_cert=None,
        tls_key=None,
    )
    assert "a-token" not in repr(connection)
    assert "zone='a'" in repr(connection)
