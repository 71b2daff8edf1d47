"""The play: start a cluster and two workers, ask, kill a zone, go on asking, and judge."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TypeAlias

from kvorum.cli.demo import model, script
from kvorum.cli.demo.messages import WorkerSpec
from kvorum.cli.demo.report import DemoReport, Row
from kvorum.cli.demo.workers import Worker
from kvorum.cli.exits import CommandError, UsageError
from kvorum.cli.local_cluster import LocalCluster, LocalSettings

Progress: TypeAlias = Callable[[str], None]
"""Is told, in one line each, what happens."""

ZONES: Final = 3
REPLICAS: Final = 2
LOOKUP_BUDGET_S_DEFAULT: Final = 0.1
MEMORY_BYTES_DEFAULT: Final = 256 << 20

_MAKE_S: Final = 600.0
_KILLED_S: Final = 5.0
_START_S: Final = 180.0
_ASK_S: Final = 300.0
_REPLICATE_S: Final = 30.0
_SHORT_MAIN: Final = 4
_SHORT_AFTER: Final = 2
_NEW_TOKENS: Final = 24
_SHORT_NEW_TOKENS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """What is played.

    Attributes:
        model: "smollm2" or "tiny".
        short: six questions with short answers instead of sixteen.
        seed: decides for each question whether the plain generation comes first.
        lookup_budget_s: seconds that a lookup may take.
        memory_bytes: bytes of each node's arena.
        cache: folder for models; None for `model.cache_directory()`.

    Raises:
        UsageError: the model is unknown.
    """

    model: str = model.REAL
    short: bool = False
    seed: int = 1
    lookup_budget_s: float = LOOKUP_BUDGET_S_DEFAULT
    memory_bytes: int = MEMORY_BYTES_DEFAULT
    cache: Path | None = None

    def __post_init__(self) -> None:
        if self.model not in model.MODELS:
            raise UsageError(
                f"there is no model {self.model!r}",
                field="--model",
                limit=", ".join(model.MODELS),
            )

    @property
    def main_questions(self) -> int:
        """Questions before a zone is killed."""
        return _SHORT_MAIN if self.short else script.MAIN_QUESTIONS

    @property
    def questions(self) -> tuple[str, ...]:
        """All questions in order."""
        if not self.short:
            return script.QUESTIONS
        return script.QUESTIONS[: _SHORT_MAIN + _SHORT_AFTER]

    @property
    def max_new_tokens(self) -> int:
        """Most tokens of an answer."""
        return _SHORT_NEW_TOKENS if self.short else _NEW_TOKENS


def run_demo(options: DemoOptions, progress: Progress = lambda _: None) -> DemoReport:
    """Play, and return what was measured; the report says what failed.

    Raises:
        UsageError: something must be installed first.
        CommandError: the model could not be made ready, or a worker failed.
        KvorumError: the cluster could not be started.
    """
    began = time.perf_counter()
    model.check_installed(options.model)
    ready = _ready_model(options, progress)
    settings = LocalSettings(zones=ZONES, memory_bytes=options.memory_bytes)
    progress(f"starting {ZONES} zones and loading the model in two workers")
    with LocalCluster(settings) as cluster, _workers(options, ready, cluster) as workers:
        for worker in workers:
            load_s = worker.started(_START_S).load_s
            progress(f"{worker.spec.name} in zone {worker.spec.zone} is ready after {load_s:.1f} s")
        stage = _Stage(options, workers, progress)
        for question in options.questions[: options.main_questions]:
            stage.ask(question)
        zone = stage.busiest_zone()
        killed = cluster.kill_zone(zone)
        progress(f"KILLED zone {zone} ({', '.join(killed)}), going on")
        for question in options.questions[options.main_questions :]:
            stage.ask(question, after_zone_kill=True)
    return DemoReport(
        model=ready.name,
        random_weights=ready.random_weights,
        short=options.short,
        block_tokens=model.BLOCK_TOKENS[options.model],
        max_new_tokens=options.max_new_tokens,
        lookup_budget_s=options.lookup_budget_s,
        zone_killed=zone,
        processes_killed=killed,
        rows=tuple(stage.rows),
        seconds=time.perf_counter() - began,
    )


class _Stage:
    """Asks the workers in turn and keeps what they answered."""

    def __init__(self, options: DemoOptions, workers: list[Worker], progress: Progress) -> None:
        self.rows: list[Row] = []
        self._workers = workers
        self._progress = progress
        self._total = len(options.questions)
        self._order = random.Random(options.seed)  # noqa: S311  # an order, not a secret

    def ask(self, question: str, *, after_zone_kill: bool = False) -> None:
        """Let the worker whose turn it is answer; the first question's KV gets stored."""
        number = len(self.rows) + 1
        worker = self._workers[(number - 1) % len(self._workers)]
        answer = worker.ask(question, plain_first=self._order.random() < 0.5, timeout_s=_ASK_S)
        row = Row(
            number=number,
            question=question,
            worker=worker.spec.name,
            after_zone_kill=after_zone_kill,
            **asdict(answer),
        )
        self.rows.append(row)
        self._progress(
            f"{number}/{self._total} {row.worker}: {row.cached_tokens} of {row.prompt_tokens} "
            f"tokens cached, first token after {row.ttft_cached_s:.2f} s instead of "
            f"{row.ttft_plain_s:.2f} s, {'identical' if row.identical else 'DIFFERENT'}\n"
            f"    {question}\n    {' '.join(row.answer.split())}"
        )
        if number == 1:
            self._await_replicas(worker, question)

    def busiest_zone(self) -> str:
        """Return the zone that sent most bytes: the one whose loss is felt."""
        sent: Counter[str] = Counter()
        for row in self.rows:
            sent.update(row.bytes_by_zone)
        zones = sorted(sent, key=lambda zone: (-sent[zone], zone))
        return zones[0] if zones else self._workers[0].spec.zone

    def _await_replicas(self, worker: Worker, question: str) -> None:
        zones = worker.await_replicas(question, REPLICAS, _REPLICATE_S)
        if zones < REPLICAS:
            raise CommandError(
                f"after {_REPLICATE_S:g} s the stored blocks are in {zones} zones",
                limit=f"{REPLICAS} zones",
            )
        self._progress(f"its KV is stored in {zones} zones; all others have it from there")


@contextlib.contextmanager
def _workers(
    options: DemoOptions, ready: model.ReadyModel, cluster: LocalCluster
) -> Iterator[list[Worker]]:
    """Yield two workers in two zones, loading at the same time."""
    zones = sorted({member.zone for member in cluster.members})
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                Worker(
                    WorkerSpec(
                        name=f"worker-{number}",
                        zone=zone,
                        endpoints=cluster.endpoints,
                        ready=ready,
                        block_tokens=model.BLOCK_TOKENS[options.model],
                        max_new_tokens=options.max_new_tokens,
                        lookup_budget_s=options.lookup_budget_s,
                    )
                )
            )
            for number, zone in enumerate(zones[:2], start=1)
        ]


def _ready_model(options: DemoOptions, progress: Progress) -> model.ReadyModel:
    """Return the model, made ready first if it is not.

    In a process of its own, which keeps the memory and the libraries of that out of this one.
    """
    cache = options.cache or model.cache_directory()
    ready = model.find_ready(options.model, cache)
    if ready is not None:
        return ready
    progress(f"making the model ready in {cache}, once; half a minute for the real one")
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=make_model, args=(options.model, cache), daemon=True)
    process.start()
    process.join(_MAKE_S)
    if process.is_alive():
        process.kill()
        process.join(_KILLED_S)
        raise CommandError("the model was not ready in time", limit=f"{_MAKE_S:g} s")
    ready = model.find_ready(options.model, cache)
    if ready is None:
        raise CommandError(f"making the model ready failed with status {process.exitcode}")
    return ready


def make_model(kind: str, cache: Path) -> None:
    """Run in the process that makes the model ready."""
    # The parent ends with this signal when it is interrupted; the half-made folder goes first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    model.quiet_libraries()
    model.make_ready(kind, cache)
