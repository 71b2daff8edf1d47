"""Desk: the inside of a worker process, a model and a client that serve the parent's requests."""

from __future__ import annotations

import os
import signal
import time
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from kvorum.cli.demo import model, script
from kvorum.cli.demo.messages import (
    Answer,
    Ask,
    AwaitReplicas,
    Failure,
    Replicas,
    Reply,
    Request,
    Started,
    WorkerSpec,
)
from kvorum.cli.exits import CommandError

if TYPE_CHECKING:
    from kvorum.client import Client
    from kvorum.client.engines.transformers import CachedGenerator, Generation

NAMESPACE: Final = "demo"
THREADS_MAX: Final = 8
FETCH_MIN_S: Final = 1.0
"""Seconds that a fetch may always take: the tiny model recomputes in less than a busy machine may
need to answer, and the demo is there to show hits."""

_CONNECT_S: Final = 20.0
_FLUSH_S: Final = 60.0
_POLL_S: Final = 0.05
_WARM_TOKENS: Final = 256


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
    from kvorum.client import Client  # only workers need them
    from kvorum.client.engines.transformers import (
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
    settings = GeneratorSettings(lookup_budget_s=spec.lookup_budget_s, fetch_min_s=FETCH_MIN_S)
    with (
        Client(
            spec.endpoints, namespace=NAMESPACE, fingerprint=fingerprint, zone=spec.zone
        ) as client,
        CachedGenerator(
            language_model, client, tokenizer=tokenizer, settings=settings
        ) as generator,
    ):
        client.connect(_CONNECT_S)
        desk = Desk(generator, client, tokenizer, spec.max_new_tokens)
        desk.warm_up()
        pipe.send(Started(time.perf_counter() - began))
        while True:
            pipe.send(desk.handle(pipe.recv()))


def _load(spec: WorkerSpec) -> tuple[Any, Any]:
    model.quiet_libraries()
    import torch  # heavy, and not for the parent

    # One worker computes at a time, and the nodes need a core only while they send.
    torch.set_num_threads(min(THREADS_MAX, torch.get_num_threads()))
    tokenizer, language_model = model.load(spec.ready)
    return language_model, tokenizer


class Desk:
    """Serves the requests of one worker."""

    def __init__(
        self,
        generator: CachedGenerator,
        client: Client,
        tokenizer: Any,
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
        text = self._tokenizer.apply_chat_template(
            script.messages(question), tokenize=False, add_generation_prompt=True
        )
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return np.asarray(ids, dtype=np.int64)
