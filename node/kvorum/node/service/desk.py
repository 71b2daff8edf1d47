"""Desk: what the handlers of one node share."""

from __future__ import annotations

from dataclasses import dataclass

from kvorum.node.admission import Admission
from kvorum.node.driver import Driver
from kvorum.node.lifecycle import Lifecycle
from kvorum.node.service.gatekeeper import Gatekeeper
from kvorum.placement import ClusterFile


@dataclass(frozen=True, slots=True)
class Desk:
    """What the handlers of one node share.

    Attributes:
        cluster: what all members agree on.
        driver: the engine, the arena and the clock.
        gatekeeper: checks who calls.
        lifecycle: who this node is, and whether it drains.
        admission: counts what is served at once.
    """

    cluster: ClusterFile
    driver: Driver
    gatekeeper: Gatekeeper
    lifecycle: Lifecycle
    admission: Admission
