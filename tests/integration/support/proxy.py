"""A TCP proxy that does to bytes what networks do: flip a bit, cut, delay, swallow.

Faults are aimed with a *marker*, a run of bytes that a test puts into a payload: where in a
connection the payload lies is gRPC's business, and a marker finds it in either direction.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Final, Self

_READ_BYTES: Final = 1 << 16
_POLL_S: Final = 0.005
_START_S: Final = 10.0


class Direction(Enum):
    """Which way bytes go."""

    TO_NODE = "to the node"
    TO_CLIENT = "to the client"


@dataclass(frozen=True, slots=True)
class FlipBit:
    """Flips the lowest bit of the marker's last byte, every time that the marker passes."""

    direction: Direction
    marker: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """Breaks the connection off `after` bytes behind the marker."""

    direction: Direction
    marker: bytes
    after: int = 0


@dataclass(frozen=True, slots=True)
class BlackHole:
    """Holds everything back: connections stay open, new ones are taken, and nothing answers."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Holds each piece back for a while, in the given direction."""

    direction: Direction
    seconds: float


Fault = FlipBit | Cut | BlackHole | Delay


class FaultProxy:
    """A proxy before one address.

    Attributes:
        target_port: loopback port behind it; may change, for connections to come.
        port: where it listens on loopback; 0 before it does.
        trips: how often the fault hit since it was armed.
        fault: the fault that hits now, connections that are open included; None for none.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.trips = 0
        self.fault: Fault | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """host:port of the proxy."""
        return f"127.0.0.1:{self.port}"

    def arm(self, fault: Fault) -> None:
        """Let `fault` hit from now on."""
        self.trips = 0
        self.fault = fault

    def heal(self) -> None:
        """Pass everything on again, unharmed."""
        self.fault = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Break every connection off and listen no more."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._connect(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.transport.abort()  # as a dead node refuses: without an answer
            return
        connection = _Connection(self, writer, far_writer)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(connection.pump(reader, far_writer, Direction.TO_NODE))
                tasks.create_task(connection.pump(far_reader, writer, Direction.TO_CLIENT))
        finally:
            connection.abort()


class _Connection:
    """One connection through a proxy, with what it saw of the marker."""

    def __init__(self, proxy: FaultProxy, *writers: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._writers = writers
        self._fault: Fault | None = None
        self._tails: dict[Direction, bytes] = {}
        self._left: int | None = None

    def abort(self) -> None:
        """Break the connection off on both sides."""
        for writer in self._writers:
            writer.transport.abort()

    async def pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Carry bytes one way until an end, a break or a cut."""
        try:
            while data := await reader.read(_READ_BYTES):
                await self._hold(direction)
                out, cut = self._harm(data, direction)
                writer.write(out)
                await writer.drain()
                if cut:
                    break
        except OSError:
            self.abort()  # one side is gone: tell the other
        for end in self._writers:
            end.close()  # what was passed on still arrives

    async def _hold(self, direction: Direction) -> None:
        match self._proxy.fault:
            case Delay(direction=which, seconds=seconds) if which is direction:
                self._proxy.trips += 1
                await asyncio.sleep(seconds)
            case BlackHole():
                self._proxy.trips += 1
                while isinstance(self._proxy.fault, BlackHole):
                    await asyncio.sleep(_POLL_S)

    def _harm(self, data: bytes, direction: Direction) -> tuple[bytes, bool]:
        """Return what goes on of `data`, and whether the connection ends behind it."""
        fault = self._proxy.fault
        if fault is not self._fault:
            self._fault, self._left = fault, None
            self._tails.clear()
        match fault:
            case FlipBit(direction=which, marker=marker) if which is direction:
                return self._flip(data, direction, marker), False
            case Cut(direction=which, marker=marker, after=after) if which is direction:
                return self._cut(data, direction, marker, after)
        return data, False

    def _ends(self, data: bytes, direction: Direction, marker: bytes) -> list[int]:
        """Return the positions in `data` behind each marker, those begun earlier included."""
        tail = self._tails.get(direction, b"")
        seen = tail + data
        self._tails[direction] = seen[-(len(marker) - 1) :]
        ends, at = [], seen.find(marker)
        while at >= 0:
            ends.append(at + len(marker) - len(tail))
            at = seen.find(marker, at + len(marker))
        return ends

    def _flip(self, data: bytes, direction: Direction, marker: bytes) -> bytes:
        out = bytearray(data)
        for end in self._ends(data, direction, marker):
            out[end - 1] ^= 1
            self._proxy.trips += 1
        return bytes(out)

    def _cut(
        self, data: bytes, direction: Direction, marker: bytes, after: int
    ) -> tuple[bytes, bool]:
        begin = 0
        if self._left is None:
            ends = self._ends(data, direction, marker)
            if not ends:
                return data, False
            begin, self._left = ends[0], after
        if len(data) - begin < self._left:
            self._left -= len(data) - begin
            return data, False
        self._proxy.trips += 1
        return data[: begin + self._left], True


class Proxies:
    """Proxies on one event loop in one thread; a context manager.

    Args:
        target_ports: the loopback port behind each proxy.
    """

    def __init__(self, *target_ports: int) -> None:
        self.all = [FaultProxy(port) for port in target_ports]
        self._thread = threading.Thread(target=self._run, name="proxies")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving = threading.Event()
        self._end: asyncio.Event | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._serving.wait(_START_S):
            raise AssertionError("the proxies do not serve")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._end is not None:
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_START_S)
        if self._thread.is_alive():
            raise AssertionError("the proxies do not end")

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        for proxy in self.all:
            await proxy.start()
        self._serving.set()
        await self._end.wait()
        for proxy in self.all:
            await proxy.stop()
