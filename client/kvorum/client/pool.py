"""Pool: the channels to every node. Calls without payload never wait behind payload."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from itertools import cycle
from typing import Any, Final

import grpc
import grpc.aio

from kvorum.client.security import Tls
from kvorum.core import limits
from kvorum.core.errors import UnavailableError
from kvorum.v1 import cache_pb2_grpc, cluster_pb2_grpc, namespace_pb2_grpc
from kvorum.v1.frames import get_frames, put_frames

_MESSAGE_BYTES: Final = limits.MESSAGE_BYTES_MAX + (64 << 10)
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    # A connection for each channel: otherwise gRPC would put them all on one.
    ("grpc.use_local_subchannel_pool", 1),
    # A node that was restarted is found within a second. The least is also what one attempt to
    # connect may take, so that a black hole does not hold the next attempt up.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # A connection that died without a word is found dead, also while a call waits on it.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    # Retries and routes are the client's: a proxy or a service config must not change them.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
)

_SETTLED: Final = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.SHUTDOWN)
_LOOK_S: Final = 0.002
"""Seconds between two looks at a channel that is not connected yet."""


class Link:
    """The channels to one node, with their stubs.

    Attributes:
        address: host:port of the node.
        cache: blocks, without payload.
        cluster: topology and state.
        namespaces: namespaces.

    Args:
        address: host:port of the node.
        tls: certificates; None for plain text.
        payload_channels: channels that carry payload.
    """

    def __init__(self, address: str, tls: Tls | None, payload_channels: int) -> None:
        self.address = address
        self._channels = [_open(address, tls) for _ in range(1 + payload_channels)]
        control, *payload = self._channels
        self.cache = cache_pb2_grpc.CacheServiceStub(control)
        self.cluster = cluster_pb2_grpc.ClusterServiceStub(control)
        self.namespaces = namespace_pb2_grpc.NamespaceServiceStub(control)
        self._gets = cycle([get_frames(channel) for channel in payload])
        self._puts = cycle([put_frames(channel) for channel in payload])

    def get(self) -> grpc.aio.UnaryStreamMultiCallable[Any, Any]:
        """Return the stub of `Get` on the next payload channel."""
        return next(self._gets)

    def put(self) -> grpc.aio.StreamUnaryMultiCallable[Any, Any]:
        """Return the stub of `Put` on the next payload channel."""
        return next(self._puts)

    def warm(self) -> None:
        """Begin to connect, without waiting."""
        for channel in self._channels:
            channel.get_state(try_to_connect=True)

    async def connect(self, timeout_s: float) -> None:
        """Wait until every channel is connected or closed, or until the time is over.

        It looks again and again: gRPC cannot take a watch back, and would end it after the event
        loop, with a traceback in whichever loop comes next.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for channel in self._channels:
                    while channel.get_state(try_to_connect=True) not in _SETTLED:  # noqa: ASYNC110  # see above
                        await asyncio.sleep(_LOOK_S)

    async def close(self) -> None:
        """Cancel the calls on every channel and close it."""
        for channel in self._channels:
            await channel.close(grace=None)


def _open(address: str, tls: Tls | None) -> grpc.aio.Channel:
    if tls is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    options = (*_OPTIONS, *tls.options())
    return grpc.aio.secure_channel(address, tls.credentials(), options=options)


def _closed() -> UnavailableError:
    return UnavailableError("the client was closed during the call")


class Pool:
    """The links to all nodes, made when first used.

    Args:
        tls: certificates; None for plain text.
        channels_per_node: payload channels of each link.
    """

    def __init__(self, tls: Tls | None, channels_per_node: int) -> None:
        self._tls = tls
        self._channels_per_node = channels_per_node
        self._links: dict[str, Link] = {}
        self._closed = False

    def link(self, address: str) -> Link:
        """Return the link to the node at an address.

        Raises:
            UnavailableError: the pool is closed.
        """
        if self._closed:
            raise _closed()
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(address, self._tls, self._channels_per_node)
        return link

    async def connect(self, addresses: Iterable[str], timeout_s: float) -> None:
        """Connect to nodes, and wait for those that can be reached in time.

        Raises:
            UnavailableError: the pool is closed, or was meanwhile.
        """
        links = [self.link(address) for address in addresses]
        async with asyncio.TaskGroup() as group:
            for link in links:
                group.create_task(link.connect(timeout_s))
        if self._closed:
            raise _closed()

    async def drop(self, address: str) -> None:
        """Close the link to an address; the next use makes a new one, on new connections."""
        link = self._links.pop(address, None)
        if link is not None:
            await link.close()

    async def keep_only(self, addresses: Iterable[str]) -> None:
        """Close the links to all other addresses."""
        for address in self._links.keys() - set(addresses):
            await self.drop(address)

    async def close(self) -> None:
        """Close every link."""
        self._closed = True
        links, self._links = list(self._links.values()), {}
        async with asyncio.TaskGroup() as group:
            for link in links:
                group.create_task(link.close())
