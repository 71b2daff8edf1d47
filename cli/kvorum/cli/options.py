"""Flags that several commands share, and the connection that they describe."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from kvorum.cli import filechain
from kvorum.cli.exits import FileError
from kvorum.client import Client, ClientSettings, NamespacePolicy, Tls
from kvorum.core.limits import CALL_S_MAX

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

PORT_DEFAULT: Final = 7411
ENDPOINTS_DEFAULT: Final = ",".join(f"127.0.0.1:{PORT_DEFAULT + zone}" for zone in range(3))
"""Where `kvorum up` serves unless told otherwise."""

_PATH: Final = click.Path(path_type=Path)


def common_options(function: FunctionT) -> FunctionT:
    """Add `--json` (as `as_json`), and `--debug`, which `kvorum.cli.main` alone looks at."""
    flags = (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line."),
        click.option(
            "--debug",
            is_flag=True,
            expose_value=False,
            help="Log everything, and show tracebacks.",
        ),
    )
    for flag in reversed(flags):
        function = flag(function)
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach a cluster, as the flags of `connection_options` say.

    Attributes:
        endpoints: host:port of some nodes.
        token: bearer token of the tenant; None for an open cluster.
        zone: zone to ask first; None for no preference.
        timeout_s: seconds that one call may take.
        tls_ca: path of the authority of the nodes' certificates; with the next two for mutual TLS.
        tls_cert: path of the own certificate.
        tls_key: path of its key.
    """

    endpoints: tuple[str, ...]
    token: str | None = field(repr=False)
    zone: str | None
    timeout_s: float
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None

    def tls(self) -> Tls | None:
        """Return the certificates; None if no flag names one.

        Raises:
            FileError: a file cannot be read.
            InvalidArgumentError: a certificate without its key.
        """
        if not (self.tls_ca or self.tls_cert or self.tls_key):
            return None
        try:
            return Tls.from_files(ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key)
        except OSError as error:
            raise FileError(
                f"{error.filename} cannot be read: {error.strerror}", field="--tls-ca"
            ) from error

    def observer(self) -> Client:
        """Return a client that asks about nodes and opens no namespace."""
        return self._client("none", NamespacePolicy(), create=False)

    def files(
        self, namespace: str, *, create: bool, policy: NamespacePolicy | None = None
    ) -> Client:
        """Return a connected client of a namespace of files.

        Raises:
            UnavailableError: no endpoint answers.
            KvorumError: the namespace is missing, holds no files, or is not the caller's.
        """
        client = self._client(namespace, policy or NamespacePolicy(), create=create)
        try:
            client.connect(timeout_s=self.timeout_s)
        except BaseException:
            client.close()
            raise
        return client

    def _client(self, namespace: str, policy: NamespacePolicy, *, create: bool) -> Client:
        return Client(
            self.endpoints,
            namespace=namespace,
            fingerprint=filechain.FINGERPRINT,
            zone=self.zone,
            token=self.token,
            tls=self.tls(),
            policy=policy,
            create=create,
            settings=ClientSettings(call_deadline_s=self.timeout_s),
        )


_CONNECTION_FLAGS: Final = tuple(
    item.name for item in fields(Connection) if item.name != "endpoints"
)


def connection_options(function: FunctionT) -> FunctionT:
    """Add the flags that say where the cluster is, as one argument `connection`."""

    @click.option(
        "--endpoint",
        "endpoints",
        envvar="KVORUM_ENDPOINTS",
        default=ENDPOINTS_DEFAULT,
        show_default=True,
        metavar="HOST:PORT,...",
        help="Nodes of the cluster; some suffice.",
    )
    @click.option("--token", envvar="KVORUM_TOKEN", help="Bearer token of the tenant.")
    @click.option("--zone", envvar="KVORUM_ZONE", help="Zone to ask first.")
    @click.option(
        "--timeout",
        "timeout_s",
        envvar="KVORUM_TIMEOUT",
        type=click.FloatRange(0.01, CALL_S_MAX),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="For one call.",
    )
    @click.option("--tls-ca", envvar="KVORUM_TLS_CA", type=_PATH, help="Authority of the nodes.")
    @click.option("--tls-cert", envvar="KVORUM_TLS_CERT", type=_PATH, help="Own certificate.")
    @click.option("--tls-key", envvar="KVORUM_TLS_KEY", type=_PATH, help="Its private key.")
    @functools.wraps(function)
    def wrapped(endpoints: str, **flags: object) -> object:
        own = {name: flags.pop(name) for name in _CONNECTION_FLAGS}
        nodes = tuple(word.strip() for word in endpoints.split(","))
        connection = Connection(endpoints=nodes, **own)  # type: ignore[arg-type]  # click's types
        result: object = function(connection=connection, **flags)
        return result

    return wrapped  # type: ignore[return-value]  # click calls it with the flags' names
