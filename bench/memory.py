"""Does a node's memory stay within its arena and a fixed rest, whatever is written?

    python -m bench.memory [--json] [--memory SIZE] [--times N]

Writes N times the capacity, tiny and huge blocks mixed, and watches the resident memory of the
node all the while.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import psutil

from bench.cases import KIB, MIB
from bench.kvorum_cluster import BLOCK_TOKENS, FINGERPRINT
from kvorum.cli import LocalCluster, LocalSettings
from kvorum.cli.sizes import format_size
from kvorum.client import Client, NamespacePolicy
from kvorum.core.errors import OverloadedError
from kvorum.node.settings import parse_size

REST_BYTES_MAX: Final = 150 * 1000 * 1000
_CALL_S: Final = 30.0
_BATCHES: Final = (
    # (bytes of a block, blocks in one call): about as many bytes in each kind of call
    (1, 512),
    (4 * KIB, 512),
    (65 * KIB, 256),
    (MIB + 1, 16),
    (4 * MIB, 4),
    (16 * MIB, 1),
)


def batches(capacity_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (block bytes, blocks) for ever, no block larger than a quarter of the capacity."""
    usable = [batch for batch in _BATCHES if batch[0] <= capacity_bytes // 4]
    while True:
        yield from usable


def write(client: Client, node: psutil.Process, capacity_bytes: int, times: int) -> dict[str, int]:
    """Write `times` the capacity; return what was written, refused, and the most memory seen."""
    total: dict[str, int] = {"written_bytes": 0, "blocks": 0, "refused": 0, "resident_bytes_max": 0}
    random_bytes = memoryview(np.random.default_rng(1).bytes(32 * MIB))
    for size, count in batches(capacity_bytes):
        if total["written_bytes"] >= times * capacity_bytes:
            return total
        tokens = np.frombuffer(secrets.token_bytes(4 * BLOCK_TOKENS * count), dtype=np.uint32)
        blocks = [random_bytes[index : index + size] for index in range(count)]
        result = client.store(tokens, blocks, deadline_s=_CALL_S)
        for error in result.errors:
            if not isinstance(error, OverloadedError):
                raise error
        total["written_bytes"] += size * result.stored
        total["blocks"] += result.stored
        total["refused"] += result.refused
        resident = node.memory_info().rss
        total["resident_bytes_max"] = max(total["resident_bytes_max"], resident)
    raise AssertionError("batches ended")


def main() -> None:
    """Run; exits with 1 if the memory went over the bound."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--memory", default="256MiB", help="arena of the node")
    parser.add_argument("--times", type=int, default=20, help="capacities to write")
    arguments = parser.parse_args()
    capacity_bytes = parse_size(arguments.memory, "memory")
    settings = LocalSettings(zones=1, memory_bytes=capacity_bytes)
    with (
        LocalCluster(settings) as cluster,
        Client(
            cluster.endpoints,
            namespace="memory",
            fingerprint=FINGERPRINT,
            policy=NamespacePolicy(replicas=1),
        ) as client,
    ):
        client.connect()
        node = psutil.Process(cluster.process(cluster.members[0].name).pid)
        born = node.memory_info().rss
        total = write(client, node, capacity_bytes, arguments.times)
    bound = capacity_bytes + REST_BYTES_MAX
    result: dict[str, Any] = {
        "arena_bytes": capacity_bytes,
        "resident_bytes_at_start": born,
        **total,
        "bound_bytes": bound,
        "holds": total["resident_bytes_max"] <= bound,
    }
    print(json.dumps(result) if arguments.json else _text(result))
    sys.exit(0 if result["holds"] else 1)


def _text(result: dict[str, Any]) -> str:
    written, most = format_size(result["written_bytes"]), result["resident_bytes_max"]
    return (
        f"wrote {written} in {result['blocks']} blocks into an arena of "
        f"{format_size(result['arena_bytes'])}, {result['refused']} refused\n"
        f"resident memory: {format_size(result['resident_bytes_at_start'])} at the start, "
        f"{format_size(most)} at most, that is {format_size(most - result['arena_bytes'])} beside "
        f"the arena; wanted at most {format_size(REST_BYTES_MAX)}: "
        f"{'holds' if result['holds'] else 'DOES NOT HOLD'}"
    )


if __name__ == "__main__":
    main()
