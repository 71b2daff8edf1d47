"""Life of a client: threads, loops, forks and ends; credentials; nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import trustme

from kvorum.client import AsyncClient, Client, ClientSettings, Fetched, MissReason, Tls
from kvorum.core.errors import InvalidArgumentError, UnavailableError
from tests.integration.client.conftest import PATIENT, Case, Connect
from tests.integration.client.lying_cluster import LyingCluster, lying_cluster, stop
from tests.integration.support.values import OPAQUE, draw_bytes, draw_tokens

SOON_S = 20.0


def sync_client(cluster: LyingCluster, **options: Any) -> Client:
    chosen: dict[str, Any] = {"namespace": "n", "zone": "a", "settings": PATIENT}
    return Client(cluster.endpoints, fingerprint=OPAQUE, **(chosen | options))


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


async def test_many_threads_share_one_client(cluster: LyingCluster) -> None:
    """Eight threads store, look up and fetch different prompts at once."""

    def work(client: Client, seed: int) -> bool:
        case = Case(5, seed)
        if client.store(case.tokens, case.data).stored != 5:
            return False
        return case.is_prefix(client.fetch(client.lookup(case.tokens)), 5)

    def run() -> list[bool]:
        with sync_client(cluster) as client, ThreadPoolExecutor(8) as pool:
            client.connect(SOON_S)
            results = list(pool.map(lambda seed: work(client, seed), range(24)))
            assert client.stats.stores == 24
            return results

    assert all(await asyncio.to_thread(run))
    assert "kvorum-client" not in threads()


async def test_a_closed_client_leaves_nothing_to_other_loops(
    cluster: LyingCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: no traceback in a loop that gRPC hands the leavings of a closed one to.

    Method: a node is gone, so that clients end while they connect to it.
    """
    await stop(cluster.node("b"))

    def run() -> None:
        for _ in range(3):
            with sync_client(cluster, settings=ClientSettings(probe_timeout_s=0.1)) as client:
                client.connect(SOON_S)

    await asyncio.to_thread(run)
    gc.collect()
    await asyncio.sleep(0.1)
    assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]


async def test_closing_ends_the_calls_of_other_threads(cluster: LyingCluster) -> None:
    """A fetch hangs; close returns, and the fetch does too."""
    fetched: list[Fetched] = []

    def run() -> None:
        client = sync_client(cluster)
        client.connect(SOON_S)
        case = Case(2)
        client.store(case.tokens, case.data)
        hit = client.lookup(case.tokens)
        cluster.every(lambda faults: faults.hung.add("Get"))
        asked = cluster.calls("Get")
        worker = threading.Thread(target=lambda: fetched.append(client.fetch(hit)))
        worker.start()
        end = time.monotonic() + SOON_S
        while cluster.calls("Get") == asked:
            assert time.monotonic() < end
            time.sleep(0.005)
        client.close()
        client.close()
        worker.join(SOON_S)
        assert not worker.is_alive()
        with pytest.raises(InvalidArgumentError, match="closed"):
            client.lookup(case.tokens)

    await asyncio.to_thread(run)
    assert fetched[0].tokens == 0
    assert fetched[0].reason is MissReason.NODE_DOWN
    assert "kvorum-client" not in threads()


@pytest.mark.parametrize("method", ["Lookup", "Get", "Put", "GetTopology"])
async def test_closing_does_not_wait_for_a_black_hole(
    cluster: LyingCluster, connect: Connect, method: str
) -> None:
    client, case = await connect(cluster), Case(2)
    await case.store(client)
    hit = await case.find(client)
    cluster.every(lambda faults: faults.hung.add(method))
    calls = {
        "Lookup": lambda: client.lookup(case.tokens, budget_s=60),
        "Get": lambda: client.fetch(hit, deadline_s=60),
        "Put": lambda: client.store(case.tokens, case.data, deadline_s=60),
        "GetTopology": client.topology,
    }
    asked = cluster.calls(method)
    running = asyncio.ensure_future(calls[method]())
    async with asyncio.timeout(SOON_S):
        while cluster.calls(method) == asked:
            await asyncio.sleep(0.005)
        await client.close()
        await asyncio.wait((running,))
    if method == "GetTopology":
        assert isinstance(running.exception(), UnavailableError)
    else:
        assert not running.cancelled()
        assert not running.result()


async def test_a_cancelled_call_leaves_no_task_and_no_byte(
    cluster: LyingCluster, connect: Connect
) -> None:
    client, case = await connect(cluster), Case(2)
    await case.store(client)
    hit = await case.find(client)
    cluster.every(lambda faults: faults.hung.add("Get"))
    before = asyncio.all_tasks()
    into = bytearray(b"\xee" * 10_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.fetch(hit, into=into)
    await asyncio.sleep(0.05)
    left = [task for task in asyncio.all_tasks() - before if "kvorum.client" in repr(task)]
    assert not left
    assert not any(into[: sum(map(len, case.data))])


async def test_a_client_that_is_closed_leaves_no_task(cluster: LyingCluster) -> None:
    def ours() -> list[str]:
        return [repr(t) for t in asyncio.all_tasks() if "kvorum/client" in repr(t)]

    async with AsyncClient(cluster.endpoints, namespace="n", fingerprint=OPAQUE) as client:
        await client.connect(SOON_S)
        await client.lookup(draw_tokens(64, 1))
        assert ours()
    assert not ours()


async def test_a_client_that_is_forgotten_ends_its_thread(cluster: LyingCluster) -> None:
    def run() -> None:
        client = sync_client(cluster)
        client.connect(SOON_S)
        gone = weakref.ref(client)
        del client
        gc.collect()
        assert gone() is None

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await asyncio.to_thread(run)
        assert "kvorum-client" not in threads()


def test_a_process_that_forgets_to_close_ends_all_the_same() -> None:
    code = """
from kvorum.client import Client
from tests.integration.support.values import OPAQUE
client = Client("127.0.0.1:9", namespace="n", fingerprint=OPAQUE)
print(client.lookup(range(64)).tokens)
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr


def test_a_forked_child_is_told_so() -> None:
    """In a process of its own: forking one with gRPC's threads is the test's subject."""
    code = """
import os, sys, warnings
warnings.simplefilter("ignore")
from kvorum.client import Client
from kvorum.core.errors import InvalidArgumentError
from tests.integration.support.values import OPAQUE
client = Client("127.0.0.1:9", namespace="n", fingerprint=OPAQUE)
child = os.fork()
if child == 0:
    try:
        client.lookup(range(64))
    except InvalidArgumentError as error:
        client.close()
        os._exit(7 if error.field == "client" else 1)
    os._exit(1)
_, status = os.waitpid(child, 0)
client.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 7, done.stderr


async def test_an_async_client_belongs_to_one_loop(cluster: LyingCluster, connect: Connect) -> None:
    client = await connect(cluster)

    def elsewhere() -> None:
        with pytest.raises(InvalidArgumentError, match="loop"):
            asyncio.run(client.lookup(range(64)))

    await asyncio.to_thread(elsewhere)
    await client.close()
    with pytest.raises(InvalidArgumentError, match="closed"):
        await client.lookup(range(64))


async def test_the_token_travels_with_every_call(cluster: LyingCluster, connect: Connect) -> None:
    secret = draw_bytes(16, 1).hex()
    client, case = await connect(cluster, token=secret), Case(1)
    for call in (
        lambda: client.store(case.tokens, case.data),
        lambda: client.lookup(case.tokens),
        lambda: client.stat(case.tokens),
        client.topology,
        client.status,
    ):
        cluster.node("a").metadata.clear()
        await call()
        assert cluster.node("a").metadata["authorization"] == f"Bearer {secret}"


class Authority:
    """Certificates for a server on loopback and for a client."""

    def __init__(self) -> None:
        self.ca = trustme.CA()
        self.pem = self.ca.cert_pem.bytes()
        self.server = self.ca.issue_cert("localhost", "127.0.0.1")
        self.client = self.ca.issue_cert("worker.example")

    def credentials(self) -> grpc.ServerCredentials:
        chain = b"".join(part.bytes() for part in self.server.cert_chain_pems)
        return grpc.ssl_server_credentials(
            [(self.server.private_key_pem.bytes(), chain)], self.pem, require_client_auth=True
        )

    def tls(self, **changes: Any) -> Tls:
        values: dict[str, Any] = {
            "ca": self.pem,
            "cert": b"".join(part.bytes() for part in self.client.cert_chain_pems),
            "key": self.client.private_key_pem.bytes(),
        }
        return Tls(**(values | changes))


@pytest.fixture
async def guarded() -> AsyncIterator[tuple[LyingCluster, Authority]]:
    authority = Authority()
    async with lying_cluster(credentials=authority.credentials()) as cluster:
        yield cluster, authority


async def test_mutual_tls(guarded: tuple[LyingCluster, Authority], connect: Connect) -> None:
    cluster, authority = guarded
    client, case = await connect(cluster, tls=authority.tls()), Case(2)
    await case.store(client)
    assert case.is_prefix(await client.fetch(await case.find(client)), 2)


@pytest.mark.parametrize("who", ["plain", "stranger", "other authority"])
async def test_whoever_has_not_the_right_certificate_gets_nothing(
    guarded: tuple[LyingCluster, Authority], who: str
) -> None:
    cluster, authority = guarded
    tls = {
        "plain": None,
        "stranger": authority.tls(cert=None, key=None),
        "other authority": authority.tls(ca=Authority().pem),
    }[who]
    settings = ClientSettings(lookup_budget_s=0.5)
    client = AsyncClient(
        cluster.endpoints, namespace="n", fingerprint=OPAQUE, tls=tls, settings=settings
    )
    async with client:
        with pytest.raises(UnavailableError):
            await client.connect(timeout_s=1.0)
        assert (await client.lookup(draw_tokens(64, 1))).tokens == 0
    assert cluster.calls("GetTopology") == 0


async def test_status_and_topology_name_every_node(cluster: LyingCluster, connect: Connect) -> None:
    client = await connect(cluster)
    cluster.node("b").faults.errors["GetNodeStatus"] = UnavailableError("down")
    topology = await client.topology()
    assert [node.name for node in topology.nodes] == ["n-a-0", "n-b-0", "n-c-0"]
    assert topology.zones == ("a", "b", "c")
    statuses = await client.status()
    assert [status.info.zone for status in statuses] == ["a", "b", "c"]
    assert [status.reachable for status in statuses] == [True, False, True]
    assert statuses[0].peers[0].lag_s == 1.5
    assert isinstance(statuses[1].error, UnavailableError)
