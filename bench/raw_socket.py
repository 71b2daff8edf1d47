"""The floor: a loopback TCP socket with preallocated buffers on both sides, and nothing else.

Run as a program it is the server: it prints its port and serves one connection after the other.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.cases import MIB, Case

BUFFER_BYTES: Final = 64 * MIB
_HEADER: Final = struct.Struct("<cQQ")
_PUT: Final = b"P"
_GET: Final = b"G"
_ACK: Final = b"A"
_TIMEOUT_S: Final = 60.0


class RawSocket:
    """Client of the server below."""

    name = "raw socket"

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self._connection = connection
        self._case = Case(0, 0, batch=False)

    def prepare(self, case: Case) -> None:
        """Remember the case."""
        self._case = case

    def put(self, blocks: Sequence[memoryview]) -> None:
        """Send every block, and wait for an acknowledgement of each call."""
        groups = [blocks] if self._case.batch else [[block] for block in blocks]
        offset = 0
        for group in groups:
            size = sum(block.nbytes for block in group)
            self._connection.sendall(_HEADER.pack(_PUT, offset, size))
            offset += size
            for block in group:
                self._connection.sendall(block)
            receive(self._connection, memoryview(bytearray(1)))

    def get(self, into: memoryview) -> None:
        """Read into the buffer, in one call or block by block."""
        step = into.nbytes if self._case.batch else self._case.block_bytes
        for start in range(0, into.nbytes, step):
            self._connection.sendall(_HEADER.pack(_GET, start, step))
            receive(self._connection, into[start : start + step])


def receive(connection: socket.socket, into: memoryview) -> bool:
    """Fill a buffer; return False if the other side closed first."""
    done = 0
    while done < into.nbytes:
        count = connection.recv_into(into[done:], 0, socket.MSG_WAITALL)
        if not count:
            return False
        done += count
    return True


@contextlib.contextmanager
def raw_socket() -> Iterator[RawSocket]:
    """Start the server in a process of its own and yield its client."""
    command = [sys.executable, "-m", "bench.raw_socket"]
    root = Path(__file__).parents[1]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield RawSocket(server.pid, connection)
    finally:
        server.terminate()
        server.wait()


def serve() -> None:
    """Serve one connection, then end: a get answers what was put last."""
    buffer = memoryview(bytearray(BUFFER_BYTES))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        header = memoryview(bytearray(_HEADER.size))
        while receive(connection, header):
            operation, offset, size = _HEADER.unpack(header)
            _serve_one(connection, operation, buffer[offset : offset + size])


def _serve_one(connection: socket.socket, operation: bytes, data: memoryview) -> None:
    if operation == _PUT:
        receive(connection, data)
        connection.sendall(_ACK)
    else:
        connection.sendall(data)


if __name__ == "__main__":
    serve()
