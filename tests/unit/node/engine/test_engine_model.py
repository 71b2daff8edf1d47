"""The engine against a simple model, through every event.

Goal: whatever happens in whatever order, a reader gets the bytes of one writer's group or a miss,
nothing that is kept goes, memory comes back, and the engine's state agrees with itself.
Method: hypothesis draws events (`machine*.py`); the model of `model.py` says what must be visible;
the driver's arena is simulated with tags, so that memory handed out twice shows as wrong bytes;
after every event the invariants of `invariants.py` are computed anew.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from kvorum.node.engine.events import AbortReplica, AbortWrite, EndRead, Tick
from tests.unit.node.engine.invariants import check_invariants
from tests.unit.node.engine.machine_reads import KeepingRules, ReadRules
from tests.unit.node.engine.machine_writes import ReplicaRules


class EngineAgainstModel(ReplicaRules, ReadRules, KeepingRules):
    def teardown(self) -> None:
        """With every grant ended and every namespace gone, the arena is one free extent."""
        for grant_id in self.writes:
            self.handle(AbortWrite(grant_id))
        for grant_id in self.replicas:
            self.handle(AbortReplica(grant_id))
        for grant_id in self.reads:
            self.handle(EndRead(grant_id))
        for name in tuple(self.models):
            self.undefine(name)
        self.handle(Tick())
        status = self.engine.status()
        assert (status.used_bytes, status.index_bytes) == (0, 0)
        assert status.largest_free_bytes == status.arena_bytes
        check_invariants(self.engine)


TestEngineAgainstModel = EngineAgainstModel.TestCase
TestEngineAgainstModel.settings = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
