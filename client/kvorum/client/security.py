"""Tls and tokens: how the client proves who it is, and checks who answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc

from kvorum.core.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Certificates, PEM-encoded.

    Attributes:
        ca: certificates of the authority that signed the nodes' certificates; None to trust what
            gRPC trusts.
        cert: the client's own certificate, for mutual TLS.
        key: the private key of `cert`.
        server_name: name that the nodes' certificates carry, if it is not the host of the address.

    Raises:
        InvalidArgumentError: one of `cert` and `key` without the other.
    """

    ca: bytes | None = None
    cert: bytes | None = None
    key: bytes | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) is not (self.key is None):
            raise InvalidArgumentError(
                "a certificate and its key go together",
                field="tls.key" if self.key is None else "tls.cert",
                limit="both, or neither",
            )

    def __repr__(self) -> str:
        return f"Tls(server_name={self.server_name!r}, mutual={self.cert is not None})"

    @classmethod
    def from_files(
        cls,
        *,
        ca: str | Path | None = None,
        cert: str | Path | None = None,
        key: str | Path | None = None,
        server_name: str | None = None,
    ) -> Self:
        """Read the certificates from files.

        Raises:
            OSError: a file cannot be read.
            InvalidArgumentError: see the class.
        """
        pem = [None if path is None else Path(path).read_bytes() for path in (ca, cert, key)]
        return cls(ca=pem[0], cert=pem[1], key=pem[2], server_name=server_name)

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the certificates as gRPC takes them."""
        return grpc.ssl_channel_credentials(
            root_certificates=self.ca, private_key=self.key, certificate_chain=self.cert
        )

    def options(self) -> list[tuple[str, str]]:
        """Return the channel options that go with the credentials."""
        if self.server_name is None:
            return []
        return [("grpc.ssl_target_name_override", self.server_name)]


def call_metadata(token: str | None) -> Sequence[tuple[str, str]]:
    """Return the metadata of every call.

    Raises:
        InvalidArgumentError: the token is empty or cannot travel in a header.
    """
    if token is None:
        return ()
    if not isinstance(token, str) or not token or not (token.isascii() and token.isprintable()):
        raise InvalidArgumentError(
            "the token is not printable ASCII text", field="token", limit="1 or more characters"
        )
    return (("authorization", f"Bearer {token}"),)
