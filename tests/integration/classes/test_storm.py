"""Everything at once: workers in three zones while nodes die, hang, and the network lies.

The bug classes apart from one another are tested in their own files; this looks for what only
their mixture shows. Whatever happens, no fetch ever returns a byte that nobody stored.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

from kvorum.client import Client, Fetched, NamespacePolicy
from kvorum.core.layout import BlockLayout
from tests.integration.classes.conftest import Connect
from tests.integration.support.clusters import START_S, ProxiedCluster
from tests.integration.support.proxy import BlackHole, Delay, Direction, FlipBit
from tests.integration.support.settling import eventually
from tests.integration.support.values import TENSORS, draw_bytes, draw_tokens, generator
from tests.integration.support.wire import Wire

STORM_S = 12.0
DEADLINE_S = 1.0
SLACK_S = 5.0
BLOCKS = 6
STEMS = 4
PROMPTS = 12
VERSIONS = 2
LAYOUT = BlockLayout.of(TENSORS)

Kv = npt.NDArray[np.generic]


def kv_of(tokens: Sequence[int], version: int) -> Kv:
    """Return the KV of a prompt: each block is a function of the tokens up to its end."""
    blocks = []
    for end in range(16, len(tokens) + 1, 16):
        prefix = zlib.crc32(np.asarray(tokens[:end], dtype="<u4").tobytes())
        bits = generator(prefix, version).integers(0, 1 << 16, LAYOUT.shape, dtype=np.uint16)
        blocks.append(bits.view(np.float16))
    return LAYOUT.join(np.stack(blocks))


def draw_prompts(seed: int) -> list[list[int]]:
    """Return prompts of which several begin alike, for two to five blocks."""
    stems = [draw_tokens(BLOCKS * 16, seed, i) for i in range(STEMS)]
    prompts = []
    for number in range(PROMPTS):
        shared = 16 * (2 + number % 4)
        tail = draw_tokens(BLOCKS * 16 - shared, seed, 100 + number)
        prompts.append(stems[number % STEMS][:shared] + tail)
    return prompts


class Worker:
    """One worker: stores, fetches and deletes at random, and checks every byte and every wait.

    Args:
        client: how it reaches the cluster.
        prompts: what it works on.
        seed: what its choices are drawn from.
    """

    def __init__(self, client: Client, prompts: list[list[int]], seed: int) -> None:
        self.done: Counter[str] = Counter()
        self._client = client
        self._prompts = prompts
        self._draw = generator(seed)
        self._known = [[kv_of(tokens, v) for v in range(VERSIONS)] for tokens in prompts]

    def run(self, stop: threading.Event) -> Counter[str]:
        """Work until `stop`; return how often each step was taken, and with what success."""
        steps: list[Callable[[int], str]] = [self.store, self.fetch, self.fetch, self.fetch]
        while not stop.is_set():
            number = int(self._draw.integers(PROMPTS))
            step = self.delete if self._draw.random() < 0.03 else steps[self._draw.integers(4)]
            begin = time.monotonic()
            self.done[step(number)] += 1
            assert time.monotonic() - begin < 2 * DEADLINE_S + SLACK_S, step.__name__
        return self.done

    def store(self, number: int) -> str:
        """Store a prompt in one of its versions, now and then over what is there."""
        kv = self._known[number][self._draw.integers(VERSIONS)]
        overwrite = bool(self._draw.random() < 0.1)
        result = self._client.store(
            self._prompts[number], kv, overwrite=overwrite, deadline_s=DEADLINE_S
        )
        return "stored" if result else "store refused"

    def fetch(self, number: int) -> str:
        """Look a prompt up and fetch what is there."""
        hit = self._client.lookup(self._prompts[number], budget_s=DEADLINE_S)
        fetched = self._client.fetch(hit, deadline_s=DEADLINE_S)
        self.check(number, fetched)
        return "fetched" if fetched else "missed"

    def check(self, number: int, fetched: Fetched) -> None:
        """Check that each block is, whole, one that somebody stored."""
        for index, block in enumerate(fetched.blocks):
            known = [
                LAYOUT.split(kv[:, :, :, index * 16 : (index + 1) * 16], 1).tobytes()
                for kv in self._known[number]
            ]
            assert bytes(block) in known, f"block {index} of prompt {number} was never stored"

    def delete(self, number: int) -> str:
        """Delete a prompt; a cluster in trouble may refuse."""
        self._client.delete(self._prompts[number])
        return "deleted"


def harm(proxied: ProxiedCluster, seed: int, step: int) -> None:
    """Do one bad thing to one node for a while."""
    draw = generator(seed, step)
    name = proxied.members[draw.integers(len(proxied.members))].name
    process, proxy = proxied.processes[name], proxied.proxies[name]
    seconds = float(draw.uniform(0.1, 1.0))
    direction = list(Direction)[draw.integers(2)]
    match step % 5:
        case 0:
            process.pause()
            time.sleep(seconds)
            process.resume()
        case 1:
            proxy.arm(BlackHole())
            time.sleep(seconds)
        case 2:
            # So short a marker is found in headers and payload alike.
            proxy.arm(FlipBit(direction, draw_bytes(2, seed, step)))
            time.sleep(seconds)
        case 3:
            process.kill()
            time.sleep(seconds)
            process.start()
            process.wait_ready(time.monotonic() + START_S)
        case _:
            proxy.arm(Delay(direction, 0.02))
            time.sleep(seconds)
    proxy.heal()


@pytest.mark.slow
def test_a_storm(proxied: ProxiedCluster, connect: Connect, name: str, seed: int) -> None:
    """Goal: no wrong byte, no call beyond its deadline, balanced books, and a whole cluster after.

    Method: three workers store, fetch and delete prompts that begin alike, in two versions, while
    nodes are stopped, killed and cut off, and bits of their connections flip. What a fetch brings
    is compared with all that anybody stores under the key.
    """
    policy = NamespacePolicy(replicas=2)
    prompts = draw_prompts(seed)
    clients = [
        connect(proxied.endpoints, name, zone=zone, policy=policy, writer=f"worker-{zone}")
        for zone in "abc"
    ]
    clients[0].connect()
    workers = [Worker(client, prompts, seed + i) for i, client in enumerate(clients)]
    stop = threading.Event()
    with ThreadPoolExecutor(len(workers)) as pool:
        running = [pool.submit(worker.run, stop) for worker in workers]
        try:
            end, step = time.monotonic() + STORM_S, 0
            while time.monotonic() < end and not any(one.done() for one in running):
                harm(proxied, seed, step)
                step += 1
        finally:
            stop.set()
        done = sum((one.result() for one in running), Counter[str]())

    print(f"steps: {dict(done)}")  # noqa: T201  # shown when the test fails
    assert done["fetched"]
    assert done["stored"]
    for client in clients:
        stats = client.stats
        assert stats.lookups == stats.hits + sum(stats.misses.values())
        assert stats.lookup_blocks == stats.found_blocks + sum(stats.missing_blocks.values())
        assert stats.fetch_blocks == stats.fetched_blocks + sum(stats.unfetched_blocks.values())
    check_calm(proxied, workers)


def check_calm(proxied: ProxiedCluster, workers: list[Worker]) -> None:
    """After the storm everything works again, by itself, and no memory is lost."""
    for number in range(PROMPTS):
        for worker in workers:
            eventually(
                lambda: worker.store(number),  # noqa: B023  # used at once
                "a store succeeds",
                holds=lambda outcome: outcome == "stored",
            )
            eventually(
                lambda: worker.fetch(number),  # noqa: B023  # used at once
                "a fetch succeeds",
                holds=lambda outcome: outcome == "fetched",
            )
    for member in proxied.members:
        with Wire(member.address) as wire:
            eventually(
                lambda: wire.status().staged_bytes,  # used at once
                "nothing is half stored",
                holds=lambda staged: staged == 0,
            )
            eventually(
                lambda: [peer.connected for peer in wire.status().peers],  # at once
                "its peers are connected",
                holds=all,
            )
