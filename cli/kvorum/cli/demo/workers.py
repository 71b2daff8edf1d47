"""Workers: processes with a model and a client each, and the parent's end of their pipes.

Every call of the parent has a deadline, and a worker ends by itself when the parent's end of the
pipe closes, so that neither can hang on the other for ever.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar

from kvorum.cli.demo import model, script
from kvorum.cli.exits import CommandError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from kvorum.client.engines.transformers import CachedGenerator, Generation

_LOG: Final = logging.getLogger(__name__)

ReplyT = TypeVar("ReplyT")

NAMESPACE: Final = "demo"
THREADS_MAX: Final = 8
_CONNECT_S: Final = 20.0
_FLUSH_S: Final = 60.0
_STOP_S: Final = 10.0
_POLL_S: Final = 0.05
_WARM_TOKENS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What a worker needs to know.

    Attributes:
        name: its name.
        zone: the zone that it stands in.
        endpoints: host:port of every node.
        ready: the model.
        block_tokens: tokens a block.
        max_new_tokens: most tokens of an answer.
        lookup_budget_s: seconds that a lookup may take.
    """

    name: str
    zone: str
    endpoints: tuple[str, ...]
    ready: model.ReadyModel
    block_tokens: int
    max_new_tokens: int
    lookup_budget_s: float


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer a question twice: plainly and with the cache, in the order given."""

    question: str
    plain_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The reply to `Ask`; the fields are those of `kvorum.cli.demo.report.Row`."""

    prompt_tokens: int
    cached_tokens: int
    ttft_plain_s: float
    ttft_cached_s: float
    lookup_s: float
    fetch_s: float
    total_plain_s: float
    total_cached_s: float
    identical: bool
    answer: str
    bytes_by_zone: Mapping[str, int]
    reason: str | None


@dataclass(frozen=True, slots=True)
class AwaitReplicas:
    """Wait until every full block of a question's prompt is held by `zones` zones."""

    question: str
    zones: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Replicas:
    """The reply to `AwaitReplicas`: the fewest zones that hold one of the blocks."""

    zones: int


@dataclass(frozen=True, slots=True)
class Started:
    """What a worker says first: seconds that loading took."""

    load_s: float


@dataclass(frozen=True, slots=True)
class Failure:
    """What a worker says last when something went wrong."""

    message: str
    trace: str


Request: TypeAlias = "Ask | AwaitReplicas"
Reply: TypeAlias = "Started | Answer | Replicas | Failure"


class Worker:
    """The parent's view of one worker process, as a context manager."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(
            target=worker_main, args=(child, spec), name=f"kvorum-{spec.name}", daemon=True
        )
        self._process.start()
        child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            # It may be in the middle of loading or computing, which nobody waits for any more.
            self._process.kill()
        self.close()

    def started(self, timeout_s: float) -> Started:
        """Wait until the worker has loaded its model and reached the cluster."""
        return self._receive(Started, timeout_s)

    def ask(self, question: str, *, plain_first: bool, timeout_s: float) -> Answer:
        """Let the worker answer a question twice."""
        self._send(Ask(question, plain_first))
        return self._receive(Answer, timeout_s)

    def await_replicas(self, question: str, zones: int, timeout_s: float) -> int:
        """Return how many zones hold the blocks of a question's prompt, in time `zones`."""
        self._send(AwaitReplicas(question, zones, timeout_s))
        return self._receive(Replicas, timeout_s + _STOP_S).zones

    def close(self) -> None:
        """End the process, by force if need be."""
        self._pipe.close()
        self._process.join(_STOP_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_STOP_S)

    def _send(self, request: Request) -> None:
        try:
            self._pipe.send(request)
        except ConnectionError:
            raise self._ended() from None

    def _ended(self) -> CommandError:
        self._process.join(_STOP_S)
        return CommandError(f"{self.spec.name} ended with status {self._process.exitcode}")

    def _receive(self, kind: type[ReplyT], timeout_s: float) -> ReplyT:
        """Return the next reply.

        Raises:
            CommandError: the worker failed, ended, or did not answer in time.
        """
        try:
            reply = self._pipe.recv() if self._pipe.poll(timeout_s) else None
        except (EOFError, ConnectionError):
            raise self._ended() from None
        if reply is None:
            raise CommandError(f"{self.spec.name} did not answer", limit=f"{timeout_s:g} s")
        if isinstance(reply, Failure):
            _LOG.error("worker failed, worker=%s\n%s", self.spec.name, reply.trace)
            raise CommandError(f"{self.spec.name} failed: {reply.message}")
        if not isinstance(reply, kind):
            raise CommandError(f"{self.spec.name} replied with {reply!r}")
        return reply


def worker_main(pipe: Connection, spec: WorkerSpec) -> None:
    """Run a worker: load the model, reach the cluster, and serve requests until the pipe closes."""
    # Ctrl-C reaches the whole group; the parent ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before torch is loaded: its threads shall sleep while they wait for each other. Spinning, as
    # is their default, takes the cores from the nodes and from whatever else runs here.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        _serve(pipe, spec)
    except (EOFError, ConnectionError):  # the parent is gone
        return
    except Exception as error:  # noqa: BLE001  # the edge of the process: the parent reports it
        pipe.send(Failure(f"{type(error).__name__}: {error}", traceback.format_exc()))


def _serve(pipe: Connection, spec: WorkerSpec) -> None:
    from kvorum.client import Client  # noqa: PLC0415  # only workers need them
    from kvorum.client.engines.transformers import (  # noqa: PLC0415
        CachedGenerator,
        GeneratorSettings,
        fingerprint_of,
    )

    began = time.perf_counter()
    language_model, tokenizer = _load(spec)
    fingerprint = fingerprint_of(
        language_model,
        tokenizer,
        name=spec.ready.name,
        revision=spec.ready.revision,
        block_tokens=spec.block_tokens,
    )
    settings = GeneratorSettings(lookup_budget_s=spec.lookup_budget_s, fetch_min_s=1.0)
    with (
        Client(
            spec.endpoints, namespace=NAMESPACE, fingerprint=fingerprint, zone=spec.zone
        ) as client,
        CachedGenerator(
            language_model, client, tokenizer=tokenizer, settings=settings
        ) as generator,
    ):
        client.connect(_CONNECT_S)
        desk = _Desk(generator, client, tokenizer, spec.max_new_tokens)
        desk.warm_up()
        pipe.send(Started(time.perf_counter() - began))
        while True:
            pipe.send(desk.handle(pipe.recv()))


def _load(spec: WorkerSpec) -> tuple[Any, Any]:
    model.quiet_libraries()
    import torch  # noqa: PLC0415  # heavy, and not for the parent

    # One worker computes at a time, and the nodes need a core only while they send.
    torch.set_num_threads(min(THREADS_MAX, torch.get_num_threads()))
    tokenizer, language_model = model.load(spec.ready)
    return language_model, tokenizer


class _Desk:
    """Serves the requests of one worker."""

    def __init__(
        self,
        generator: CachedGenerator,
        client: Any,  # noqa: ANN401
        tokenizer: Any,  # noqa: ANN401
        max_new_tokens: int,
    ) -> None:
        self._generator = generator
        self._client = client
        self._tokenizer = tokenizer
        self._max_new_tokens = max_new_tokens

    def warm_up(self) -> None:
        """Let the model allocate what it keeps, so that no measurement pays for it."""
        tokens = self._prompt(script.QUESTIONS[0])[:_WARM_TOKENS]
        self._generator.generate(tokens, max_new_tokens=2, cached=False)

    def handle(self, request: Request) -> Reply:
        """Return the reply to a request."""
        if isinstance(request, AwaitReplicas):
            return self._await_replicas(request)
        return self._ask(request)

    def _ask(self, request: Ask) -> Answer:
        tokens = self._prompt(request.question)
        if request.plain_first:
            plain = self._generate(tokens, cached=False)
            cached = self._generate(tokens, cached=True)
        else:
            cached = self._generate(tokens, cached=True)
            plain = self._generate(tokens, cached=False)
        prefix = cached.prefix
        reason = None if prefix is None else prefix.reason
        return Answer(
            prompt_tokens=cached.prompt_tokens,
            cached_tokens=cached.cached_tokens,
            ttft_plain_s=plain.ttft_s,
            ttft_cached_s=cached.ttft_s,
            lookup_s=0.0 if prefix is None else prefix.lookup_s,
            fetch_s=0.0 if prefix is None else prefix.fetch_s,
            total_plain_s=plain.total_s,
            total_cached_s=cached.total_s,
            identical=plain.tokens == cached.tokens,
            answer=(cached.text or "").strip(),
            bytes_by_zone={} if prefix is None else dict(prefix.bytes_by_zone),
            reason=None if reason is None else reason.name,
        )

    def _generate(self, tokens: npt.NDArray[np.int64], *, cached: bool) -> Generation:
        result = self._generator.generate(
            tokens, max_new_tokens=self._max_new_tokens, cached=cached
        )
        # Two cores: a store in the background would disturb whatever is measured next.
        if not self._generator.flush(_FLUSH_S):
            raise CommandError("blocks were not stored", limit=f"{_FLUSH_S:g} s")
        return result

    def _await_replicas(self, request: AwaitReplicas) -> Replicas:
        tokens = self._prompt(request.question)
        deadline = time.monotonic() + request.timeout_s
        while True:
            zones = min(len(block.zones) for block in self._client.stat(tokens))
            if zones >= request.zones or time.monotonic() >= deadline:
                return Replicas(zones)
            time.sleep(_POLL_S)

    def _prompt(self, question: str) -> npt.NDArray[np.int64]:
        import numpy as np  # noqa: PLC0415

        text = self._tokenizer.apply_chat_template(
            script.messages(question), tokenize=False, add_generation_prompt=True
        )
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return np.asarray(ids, dtype=np.int64)
