"""Channels: the gRPC connections to the other members, with our credentials on every call."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from kvorum.core import limits
from kvorum.core.errors import InvalidArgumentError
from kvorum.node.auth import credentials
from kvorum.node.config import NodeConfig
from kvorum.placement import Member

_HEAD_BYTES_MAX: Final = 64 << 10

MESSAGE_OPTIONS: Final = (
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX + _HEAD_BYTES_MAX),
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES_MAX + _HEAD_BYTES_MAX),
)
_OPTIONS: Final = (
    *MESSAGE_OPTIONS,
    # Channels to one address would share a connection, and heartbeats would wait behind payload.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
)


class Channels:
    """Opens channels, and closes them all in the end.

    Args:
        config: says whether there is TLS.
        peer_token: what members show one another.

    Raises:
        InvalidArgumentError: a TLS file cannot be read.
    """

    def __init__(self, config: NodeConfig, peer_token: str) -> None:
        self.metadata = credentials(peer_token)
        self._credentials = _channel_credentials(config) if config.tls else None
        self._open: list[grpc.aio.Channel] = []

    def open(self, member: Member) -> grpc.aio.Channel:
        """Return a new channel to `member`, which connects when it is used."""
        if self._credentials is None:
            channel = grpc.aio.insecure_channel(member.address, options=_OPTIONS)
        else:
            channel = grpc.aio.secure_channel(member.address, self._credentials, options=_OPTIONS)
        self._open.append(channel)
        return channel

    async def close(self) -> None:
        """Close every channel; calls that are under way end."""
        for channel in self._open:
            await channel.close()


def _channel_credentials(config: NodeConfig) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        root_certificates=_read(config, "tls_ca"),
        private_key=_read(config, "tls_key"),
        certificate_chain=_read(config, "tls_cert"),
    )


def server_credentials(config: NodeConfig) -> grpc.ServerCredentials:
    """Return credentials that demand a certificate of the cluster's authority from every caller.

    Raises:
        InvalidArgumentError: a file cannot be read.
    """
    return grpc.ssl_server_credentials(
        [(_read(config, "tls_key"), _read(config, "tls_cert"))],
        root_certificates=_read(config, "tls_ca"),
        require_client_auth=True,
    )


def _read(config: NodeConfig, setting: str) -> bytes:
    path = Path(getattr(config, setting))
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(
            f"{path} cannot be read: {error.strerror}", field=setting, limit="a readable PEM file"
        ) from error
