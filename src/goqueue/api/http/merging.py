"""The answers of several nodes as one, for the routes that concern all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from goqueue.api.http.delayed import DelayedMessages
from goqueue.api.http.group_bodies import GroupList, RebalanceStats
from goqueue.api.http.queue_stats import (
    DelaySummary,
    DelayTotals,
    PriorityStats,
    ReliabilityStats,
    ReliabilityTotals,
)
from goqueue.api.http.recurring import RecurringList
from goqueue.api.http.redrive import Redriven
from goqueue.api.http.where import Merge


def _delayed(answers: Sequence[DelayedMessages], items: list[Any]) -> DelayedMessages:
    return DelayedMessages(items, sum(one.count for one in answers))


def _recurring(answers: Sequence[RecurringList], items: list[Any]) -> RecurringList:
    return RecurringList(items, sum(one.count for one in answers))


def _groups(answers: Sequence[GroupList], items: list[Any]) -> GroupList:
    return GroupList(sorted((line for one in answers for line in one.groups), key=lambda line: line.id))


def _reliability(answers: Sequence[ReliabilityStats], items: list[Any]) -> ReliabilityStats:
    totals = ReliabilityTotals(
        **{
            name: sum(getattr(one.totals, name) for one in answers)
            for name in ReliabilityTotals.__struct_fields__
        }
    )
    return ReliabilityStats(totals, items, sum(one.count for one in answers))


def _priority(answers: Sequence[PriorityStats], items: list[Any]) -> PriorityStats:
    return PriorityStats(items, sum(one.count for one in answers))


def _delays(answers: Sequence[DelaySummary], items: list[Any]) -> DelaySummary:
    totals = DelayTotals(
        **{name: sum(getattr(one.totals, name) for one in answers) for name in DelayTotals.__struct_fields__}
    )
    return DelaySummary(totals, items, sum(one.count for one in answers))


def _rebalances(answers: Sequence[RebalanceStats], items: list[Any]) -> RebalanceStats:
    """Each average counts as often as its node has rebalanced."""
    timed = [one for one in answers if one.average_duration_ms is not None]
    weight = sum(one.rebalances for one in timed)
    by_reason: dict[str, int] = {}
    for one in answers:
        for reason, count in one.by_reason.items():
            by_reason[reason] = by_reason.get(reason, 0) + count
    average = (
        sum((one.average_duration_ms or 0) * one.rebalances for one in timed) / weight if weight else None
    )
    return RebalanceStats(
        sum(one.rebalances for one in answers),
        any(one.in_progress for one in answers),
        sum(one.partitions_moved for one in answers),
        sum(one.revocation_timeouts for one in answers),
        dict(sorted(by_reason.items())),
        _largest(one.last_duration_ms for one in answers),
        _largest(one.longest_duration_ms for one in answers),
        None if average is None else round(average, 1),
    )


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def redriven(answers: Sequence[Redriven], errors: Sequence[str], *, dry_run: bool) -> Redriven:
    """`errors` are those of nodes that could not do their part."""

    def total(name: str) -> int:
        return sum(getattr(one, name) for one in answers)

    return Redriven(
        moved=total("moved"),
        failed=total("failed"),
        matched=total("matched"),
        pending=total("pending"),
        parked=total("parked"),
        skipped=total("skipped"),
        remaining=total("remaining"),
        dry_run=dry_run,
        errors=[*(error for one in answers for error in one.errors), *errors],
    )


def _place(one: Any) -> tuple[str, str, int]:
    return one.group, one.topic, one.partition


DELAYED = Merge(_delayed, "messages", lambda one: (one.deliver_at, one.partition, one.offset))
RECURRING = Merge(_recurring, "schedules", lambda one: one.name)
GROUPS = Merge(_groups)
RELIABILITY = Merge(_reliability, "groups", _place)
PRIORITY = Merge(_priority, "groups", _place)
DELAYS = Merge(_delays, "partitions", lambda one: (one.topic, one.partition))
REBALANCES = Merge(_rebalances)
