"""What the demo's parent and its workers say to each other over their pipes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kvorum.cli.demo.model import ReadyModel


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
    ready: ReadyModel
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
