"""How fast blocks go in and out: Kvorum over gRPC, against a raw loopback socket and Redis.

    python -m bench.fetch [--json] [--rounds N] [--zones N] [--quick] [--shared-cores]

Every round measures every case with every subject, one after the other, so that a slow moment of
the machine hits all of them; medians over the rounds are compared. Bytes go from the caller's
buffer and into it, and are compared with what was sent outside the timed part. The client has a
core of its own and the servers have the others, unless --shared-cores is given.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import numpy as np
import psutil

from bench.cases import MIB, Case, Subject, cases, payload
from bench.cores import separate
from bench.kvorum_cluster import Kvorum, kvorum_cluster
from bench.raw_socket import raw_socket
from bench.redis_server import redis_server
from kvorum.cli.sizes import format_size
from kvorum.cli.tables import Table

ROUNDS_DEFAULT: Final = 5
GET_RATIO_MIN: Final = 0.30
GET_GB_PER_S_MIN: Final = 0.9
_ARENA_BYTES: Final = 1024 * MIB
_OPERATIONS: Final = ("put", "get", "lookup+get")


@dataclass(slots=True)
class Samples:
    """Seconds of every measurement, by (case, operation, subject), and memory of the servers."""

    seconds: dict[tuple[Case, str, str], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    resident_bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def rate(self, case: Case, operation: str, subject: str) -> float | None:
        """Return the median in GB/s; None if it was not measured."""
        taken = self.seconds.get((case, operation, subject))
        return case.size / statistics.median(taken) / 1e9 if taken else None


def measure(subject: Subject, case: Case, blocks: Sequence[memoryview], samples: Samples) -> None:
    """Take one sample of every operation of one subject.

    Raises:
        RuntimeError: other bytes came back.
    """
    into = memoryview(bytearray(case.size))
    subject.prepare(case)
    _timed(samples, (case, "put", subject.name), lambda: subject.put(blocks))
    operations: dict[str, Callable[[], None]] = {"get": lambda: subject.get(into)}
    if isinstance(subject, Kvorum):
        subject.look()

        def look_and_get() -> None:
            subject.look()
            subject.get(into)

        operations["lookup+get"] = look_and_get
    for name, operation in operations.items():
        np.frombuffer(into, dtype=np.uint8).fill(0)  # touched, and unlike what was sent
        _timed(samples, (case, name, subject.name), operation)
        if into != b"".join(blocks):
            raise RuntimeError(f"{subject.name}, {case.label}, {name}: other bytes came back")
    resident = psutil.Process(subject.pid).memory_info().rss
    samples.resident_bytes[subject.name] = max(samples.resident_bytes[subject.name], resident)


def _timed(samples: Samples, key: tuple[Case, str, str], operation: Callable[[], None]) -> None:
    start = time.perf_counter()
    operation()
    samples.seconds[key].append(time.perf_counter() - start)


def run(subjects: Sequence[Subject], wanted: Sequence[Case], rounds: int) -> Samples:
    """Measure every case with every subject `rounds` times, after one round that does not count."""
    samples = Samples()
    for round_number in range(rounds + 1):
        for case in wanted:
            blocks = payload(case, seed=round_number)
            turn = round_number % len(subjects)
            for subject in (*subjects[turn:], *subjects[:turn]):
                measure(subject, case, blocks, samples)
        if not round_number:
            samples.seconds.clear()
        print(f"round {round_number} of {rounds}", file=sys.stderr, flush=True)
    return samples


def rows(samples: Samples, wanted: Sequence[Case], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row for each case and operation; rates in GB/s."""
    result = []
    for case in wanted:
        for operation in _OPERATIONS:
            # Only Kvorum looks up first; the floor for that is the plain get.
            plain = "get" if operation == "lookup+get" else operation
            rates = {
                name: samples.rate(case, operation if name == Kvorum.name else plain, name)
                for name in names
            }
            result.append(
                {
                    "block_bytes": case.block_bytes,
                    "blocks": case.blocks,
                    "mode": "batch" if case.batch else "single",
                    "operation": operation,
                    "gb_per_s": rates,
                    "ratio_to_raw": _ratio(rates["kvorum"], rates["raw socket"]),
                }
            )
    return result


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part and whole else None


def table(measured: list[dict[str, Any]], wanted: Sequence[Case], names: Sequence[str]) -> Table:
    """Return the rows as a table."""
    labels = {(c.block_bytes, c.blocks, "batch" if c.batch else "single"): c.label for c in wanted}
    lines = [
        (
            labels[row["block_bytes"], row["blocks"], row["mode"]],
            row["operation"],
            *(_cell(row["gb_per_s"][name]) for name in names),
            _cell(row["ratio_to_raw"]),
        )
        for row in measured
    ]
    columns = ("blocks", "operation", *names, "kvorum / raw")
    return Table("GB/s, medians", columns, lines, left=("blocks", "operation"))


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def verdict(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Judge the gets of 4 MiB blocks, by the best of single and batch."""
    gets = [r for r in measured if r["block_bytes"] == 4 * MIB and r["operation"] == "get"]
    ratio = max(row["ratio_to_raw"] or 0.0 for row in gets)
    rate = max(row["gb_per_s"][Kvorum.name] or 0.0 for row in gets)
    return {
        "get_4mib_ratio_to_raw": ratio,
        "get_4mib_gb_per_s": rate,
        "wanted": f"ratio >= {GET_RATIO_MIN} or >= {GET_GB_PER_S_MIN} GB/s",
        "holds": ratio >= GET_RATIO_MIN or rate >= GET_GB_PER_S_MIN,
    }


def main() -> None:
    """Run the benchmark; exits with 1 if the promise for 4 MiB gets does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.fetch", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=ROUNDS_DEFAULT, help="rounds that count")
    parser.add_argument("--zones", type=int, default=1, help="zones of the cluster")
    parser.add_argument("--quick", action="store_true", help="a quarter of the blocks")
    parser.add_argument("--shared-cores", action="store_true", help="place no process")
    arguments = parser.parse_args()
    wanted = cases(4 if arguments.quick else 1)
    with contextlib.ExitStack() as stack:
        found: list[Subject | None] = [
            stack.enter_context(kvorum_cluster(arguments.zones, _ARENA_BYTES)),
            stack.enter_context(raw_socket()),
            stack.enter_context(redis_server()),
        ]
        subjects = [subject for subject in found if subject is not None]
        separated = not arguments.shared_cores and separate(s.pid for s in subjects)
        samples = run(subjects, wanted, arguments.rounds)
    names = [subject.name for subject in subjects]
    measured = rows(samples, wanted, names)
    result = {
        "rounds": arguments.rounds,
        "zones": arguments.zones,
        "arena_bytes": _ARENA_BYTES,
        "machine": {
            "cores": os.cpu_count(),
            "client_has_its_own": separated,
            "platform": platform.platform(),
            "python": platform.python_version(),
            "grpcio": grpc.__version__,
        },
        "rows": measured,
        "resident_bytes": dict(samples.resident_bytes),
        "verdict": verdict(measured),
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        print(_text(result, table(measured, wanted, names)))
    sys.exit(0 if result["verdict"]["holds"] else 1)


def _text(result: dict[str, Any], rates: Table) -> str:
    judged = result["verdict"]
    resident = ", ".join(f"{n} {format_size(b)}" for n, b in result["resident_bytes"].items())
    holds = "holds" if judged["holds"] else "DOES NOT HOLD"
    promise = (
        f"get of 4 MiB blocks: {judged['get_4mib_ratio_to_raw']:.2f} of the raw socket, "
        f"{judged['get_4mib_gb_per_s']:.2f} GB/s; wanted {judged['wanted']}: {holds}"
    )
    head = f"{result['rounds']} rounds, medians in GB/s; {result['machine']}"
    memory = f"server memory: {resident} (arena {format_size(result['arena_bytes'])})"
    return "\n\n".join((head, rates.plain(), f"{memory}\n{promise}"))


if __name__ == "__main__":
    main()
