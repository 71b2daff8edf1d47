"""DemoReport: what was measured, what had to hold, and how both are shown."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

HIT_RATIO_MIN: Final = 0.90
TTFT_RATIO_MIN: Final = 5.0
SLOWER_S_MAX: Final = 0.100


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One question, generated twice by the same worker: plainly, and with the cache.

    Attributes:
        number: position in the play, from 1.
        question: what was asked.
        worker: name of the worker.
        after_zone_kill: whether a zone was dead by then.
        prompt_tokens: tokens of the prompt.
        cached_tokens: tokens that came from the cache.
        ttft_plain_s: seconds to the first token without the cache.
        ttft_cached_s: the same with the cache.
        lookup_s: seconds of it that the lookup took.
        fetch_s: seconds of it that the fetch took.
        total_plain_s: seconds to the last token without the cache.
        total_cached_s: the same with the cache.
        identical: whether both gave the same tokens.
        answer: the text, as generated with the cache.
        bytes_by_zone: bytes of KV that were read, by zone.
        reason: why the next block was missing; None if every full block was found.
    """

    number: int
    question: str
    worker: str
    after_zone_kill: bool
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

    @property
    def ttft_ratio(self) -> float:
        """How many times sooner the first token came with the cache."""
        return self.ttft_plain_s / self.ttft_cached_s

    @property
    def slower_s(self) -> float:
        """Seconds by which the cache made the request slower; negative if it made it faster.

        To the first token or to the last, whichever is more.
        """
        return max(self.ttft_cached_s - self.ttft_plain_s, self.total_cached_s - self.total_plain_s)


@dataclass(frozen=True, slots=True)
class Criterion:
    """Something that had to hold.

    Attributes:
        name: what.
        limit: the limit, as text.
        measured: the measurement, as text.
        passed: whether it held; None if it says nothing for this model and was not judged.
    """

    name: str
    limit: str
    measured: str
    passed: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The whole play.

    Attributes:
        model: name of the model.
        random_weights: whether its weights mean nothing.
        short: whether this was the short form.
        block_tokens: tokens a block.
        max_new_tokens: most tokens an answer had.
        lookup_budget_s: seconds that a lookup was given.
        zone_killed: name of the zone whose processes were killed.
        processes_killed: names of those processes.
        rows: the questions in order.
        seconds: seconds that the whole play took.
    """

    model: str
    random_weights: bool
    short: bool
    block_tokens: int
    max_new_tokens: int
    lookup_budget_s: float
    zone_killed: str
    processes_killed: tuple[str, ...]
    rows: tuple[Row, ...]
    seconds: float
    criteria: tuple[Criterion, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "criteria", self._judge())

    @property
    def later_rows(self) -> tuple[Row, ...]:
        """The questions after the first, which had to be computed."""
        return self.rows[1:]

    @property
    def hit_ratio(self) -> float:
        """Share of the prompt tokens of the questions after the first that came from the cache."""
        rows = self.later_rows
        return sum(row.cached_tokens for row in rows) / sum(row.prompt_tokens for row in rows)

    @property
    def ttft_plain_p50_s(self) -> float:
        """Median seconds to the first token without the cache, of the questions after the first."""
        return statistics.median(row.ttft_plain_s for row in self.later_rows)

    @property
    def ttft_cached_p50_s(self) -> float:
        """Median seconds to the first token with the cache, of the questions after the first."""
        return statistics.median(row.ttft_cached_s for row in self.later_rows)

    @property
    def ttft_ratio_p50(self) -> float:
        """How many times smaller the median time to the first token is with the cache."""
        return self.ttft_plain_p50_s / self.ttft_cached_p50_s

    @property
    def outputs_identical(self) -> bool:
        """Whether every answer was the same with the cache as without."""
        return all(row.identical for row in self.rows)

    @property
    def rows_after_zone_kill(self) -> tuple[Row, ...]:
        """The questions that were asked while a zone was dead."""
        return tuple(row for row in self.rows if row.after_zone_kill)

    @property
    def hits_after_zone_kill(self) -> int:
        """How many of those were served from the cache."""
        return sum(row.cached_tokens > 0 for row in self.rows_after_zone_kill)

    @property
    def bytes_by_zone(self) -> dict[str, int]:
        """Bytes of KV that were read, by zone."""
        total: Counter[str] = Counter()
        for row in self.rows:
            total.update(row.bytes_by_zone)
        return dict(sorted(total.items()))

    @property
    def passed(self) -> bool:
        """Whether nothing that was judged failed."""
        return all(criterion.passed is not False for criterion in self.criteria)

    def to_json(self) -> dict[str, Any]:
        """Return the report as values of JSON."""
        return {
            "passed": self.passed,
            "model": self.model,
            "random_weights": self.random_weights,
            "short": self.short,
            "block_tokens": self.block_tokens,
            "max_new_tokens": self.max_new_tokens,
            "lookup_budget_s": self.lookup_budget_s,
            "hit_ratio": round(self.hit_ratio, 4),
            "ttft_ratio_p50": round(self.ttft_ratio_p50, 2),
            "ttft_plain_p50_s": round(self.ttft_plain_p50_s, 4),
            "ttft_cached_p50_s": round(self.ttft_cached_p50_s, 4),
            "outputs_identical": self.outputs_identical,
            "outputs_compared": len(self.rows),
            "zone_killed": self.zone_killed,
            "processes_killed": list(self.processes_killed),
            "questions_after_zone_kill": len(self.rows_after_zone_kill),
            "hits_after_zone_kill": self.hits_after_zone_kill,
            "bytes_by_zone": self.bytes_by_zone,
            "seconds": round(self.seconds, 2),
            "criteria": [
                {
                    "name": criterion.name,
                    "limit": criterion.limit,
                    "measured": criterion.measured,
                    "passed": criterion.passed,
                }
                for criterion in self.criteria
            ],
            "questions": [_row_json(row) for row in self.rows],
        }

    def _judge(self) -> tuple[Criterion, ...]:
        identical = sum(row.identical for row in self.rows)
        after = self.rows_after_zone_kill
        slowest_s = max((row.slower_s for row in after), default=0.0)
        fast_enough = self.ttft_ratio_p50 >= TTFT_RATIO_MIN
        return (
            Criterion(
                "outputs identical to plain generation",
                f"{len(self.rows)} of {len(self.rows)}",
                f"{identical} of {len(self.rows)}",
                self.outputs_identical,
            ),
            Criterion(
                "token hit ratio after the first question",
                f">= {HIT_RATIO_MIN:.2f}",
                f"{self.hit_ratio:.3f}",
                self.hit_ratio >= HIT_RATIO_MIN,
            ),
            Criterion(
                "time to first token, p50, plain : cached",
                f">= {TTFT_RATIO_MIN:g}",
                f"{self.ttft_ratio_p50:.1f}",
                # So small a model computes as fast as any cache answers: times say nothing.
                None if self.random_weights else fast_enough,
            ),
            Criterion(
                f"hits while zone {self.zone_killed} is dead",
                f"{len(after)} of {len(after)}",
                f"{self.hits_after_zone_kill} of {len(after)}",
                bool(after) and self.hits_after_zone_kill == len(after),
            ),
            Criterion(
                "slowest request after that, against plain",
                f"<= +{SLOWER_S_MAX * 1000:.0f} ms",
                f"{slowest_s * 1000:+.0f} ms",
                None if self.random_weights else slowest_s <= SLOWER_S_MAX,
            ),
        )


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "number": row.number,
        "question": row.question,
        "worker": row.worker,
        "after_zone_kill": row.after_zone_kill,
        "prompt_tokens": row.prompt_tokens,
        "cached_tokens": row.cached_tokens,
        "ttft_plain_s": round(row.ttft_plain_s, 4),
        "ttft_cached_s": round(row.ttft_cached_s, 4),
        "lookup_s": round(row.lookup_s, 4),
        "fetch_s": round(row.fetch_s, 4),
        "ttft_ratio": round(row.ttft_ratio, 2),
        "total_plain_s": round(row.total_plain_s, 4),
        "total_cached_s": round(row.total_cached_s, 4),
        "identical": row.identical,
        "answer": row.answer,
        "bytes_by_zone": dict(row.bytes_by_zone),
        "reason": row.reason,
    }
