"""GET /reliability/stats, /delay/stats, /priority/stats."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.call import Call, NoBody
from goqueue.api.http.topic_bodies import LONG_MAX, Count, Instant
from goqueue.model.duration import format_instant
from goqueue.model.priority import LANE_COUNT, WEIGHTS, Priority
from goqueue.node.node import Node
from goqueue.node.queue.lane_stats import LaneStats, WindowLanes
from goqueue.node.queue.requests import QueueStats
from goqueue.node.schedule.requests import DelayStats

LIMIT_MAX = 1_000


class StatsQuery(Struct, frozen=True):
    group: Annotated[str, Meta(description="Only of this group.")] | UnsetType = UNSET
    topic: Annotated[str, Meta(description="Only of this topic.")] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX)] = 100
    skip: Annotated[int, Meta(ge=0, le=LONG_MAX)] = 0


class DelayStatsQuery(Struct, frozen=True):
    topic: Annotated[str, Meta(description="Only of this topic.")] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX)] = 100
    skip: Annotated[int, Meta(ge=0, le=LONG_MAX)] = 0


class ReliabilityTotals(Struct, frozen=True, forbid_unknown_fields=True):
    """Since the broker started."""

    delivered: Count
    acked: Count
    nacked: Count
    rejected: Count
    extended: Count
    expired: Annotated[int, Meta(ge=0, description="Leases that nobody ended in time.")]
    dead: Annotated[int, Meta(ge=0, description="Messages that became dead letters.")]


class GroupPlace(Struct, frozen=True, forbid_unknown_fields=True):
    """A group in a partition. `committed_offset`: everything before it is finished."""

    group: str
    topic: str
    partition: Count
    committed_offset: Count
    end_offset: Count
    lag: Count
    in_flight: Count
    waiting: Annotated[int, Meta(ge=0, description="Came back and will be given again.")]
    finished: Annotated[int, Meta(ge=0, description="Acknowledged, or gone from the log.")]
    dead: Count


class ReliabilityStats(Struct, frozen=True, forbid_unknown_fields=True):
    """`count`: of all places that match; some of them are in `groups`."""

    totals: ReliabilityTotals
    groups: list[GroupPlace]
    count: Count


class Lane(Struct, frozen=True, forbid_unknown_fields=True):
    priority: Annotated[int, Meta(ge=0, lt=LANE_COUNT)]
    name: str
    weight: Annotated[int, Meta(ge=1, description="Of a hundred, when every lane is full.")]
    ready: Annotated[int, Meta(ge=0, description="Not given yet; gaps in the log count as normal.")]
    waiting: Annotated[int, Meta(ge=0, description="Came back and will be given again.")]
    in_flight: Count
    served: Annotated[int, Meta(ge=0, description="Since the broker started.")]
    served_per_second: Annotated[float, Meta(ge=0, description="Over the last minute or so.")]
    last_served: Instant | None


class LanePlace(Struct, frozen=True, forbid_unknown_fields=True):
    """A group in a partition."""

    group: str
    topic: str
    partition: Count
    lanes: list[Lane]


class PriorityStats(Struct, frozen=True, forbid_unknown_fields=True):
    """`count`: of all places that match; some of them are in `groups`."""

    groups: list[LanePlace]
    count: Count


class DelayPlace(Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: Count
    pending: Count
    parked: Annotated[int, Meta(ge=0, description="Of those: on disk only, because they are due much later.")]
    fired: Annotated[int, Meta(ge=0, description="Since the broker started.")]
    cancelled: Annotated[int, Meta(ge=0, description="Since the broker started.")]


class DelayTotals(Struct, frozen=True, forbid_unknown_fields=True):
    pending: Count
    parked: Count
    fired: Count
    cancelled: Count


class DelaySummary(Struct, frozen=True, forbid_unknown_fields=True):
    """`totals` and `count` are of all partitions that match; some of them are in `partitions`."""

    totals: DelayTotals
    partitions: list[DelayPlace]
    count: Count


async def reliability_stats(call: Call[StatsQuery, NoBody]) -> ReliabilityStats:
    query = call.query
    found = [
        one
        for one in call.node.queue.stats()
        if query.group in (UNSET, one.group) and query.topic in (UNSET, one.topic)
    ]
    shown = found[query.skip : query.skip + query.limit]
    return ReliabilityStats(_totals(call.node), [_group_place(one) for one in shown], len(found))


async def priority_stats(call: Call[StatsQuery, NoBody]) -> PriorityStats:
    query = call.query
    places, count = await call.node.queue.lanes(
        group_id=None if isinstance(query.group, UnsetType) else query.group,
        topic=None if isinstance(query.topic, UnsetType) else query.topic,
        limit=query.limit,
        skip=query.skip,
    )
    return PriorityStats([_lane_place(one) for one in places], count)


async def delay_stats(call: Call[DelayStatsQuery, NoBody]) -> DelaySummary:
    query = call.query
    found = [one for one in call.node.scheduler.stats() if query.topic in (UNSET, one.topic)]
    return DelaySummary(
        DelayTotals(
            sum(one.pending_count for one in found),
            sum(one.parked_count for one in found),
            sum(one.fired_count for one in found),
            sum(one.cancelled_count for one in found),
        ),
        [_delay_place(one) for one in found[query.skip : query.skip + query.limit]],
        len(found),
    )


def _totals(node: Node) -> ReliabilityTotals:
    def count(name: str, **labels: str) -> int:
        return int(
            node.metrics.registry.get_sample_value(f"goqueue_consumer_queue_{name}_total", labels) or 0
        )

    return ReliabilityTotals(
        delivered=count("delivered"),
        acked=count("finished", action="acked"),
        nacked=count("finished", action="nacked"),
        rejected=count("finished", action="rejected"),
        extended=count("finished", action="extended"),
        expired=count("expired"),
        dead=count("dead"),
    )


def _group_place(stats: QueueStats) -> GroupPlace:
    return GroupPlace(
        group=stats.group,
        topic=stats.topic,
        partition=stats.partition,
        committed_offset=stats.committed_offset,
        end_offset=stats.end_offset,
        lag=max(0, stats.end_offset - stats.committed_offset),
        in_flight=stats.in_flight_count,
        waiting=stats.waiting_count,
        finished=stats.settled_count,
        dead=stats.dead_count,
    )


def _lane_place(place: WindowLanes) -> LanePlace:
    lanes = [_lane(priority, stats) for priority, stats in zip(Priority, place.lanes, strict=True)]
    return LanePlace(place.group, place.topic, place.partition, lanes)


def _lane(priority: Priority, stats: LaneStats) -> Lane:
    return Lane(
        priority=int(priority),
        name=priority.name.lower(),
        weight=WEIGHTS[priority],
        ready=stats.ready_count,
        waiting=stats.waiting_count,
        in_flight=stats.in_flight_count,
        served=stats.served_count,
        served_per_second=stats.served_per_second,
        last_served=None if stats.served_ms is None else format_instant(stats.served_ms),
    )


def _delay_place(stats: DelayStats) -> DelayPlace:
    return DelayPlace(
        stats.topic,
        stats.partition,
        stats.pending_count,
        stats.parked_count,
        stats.fired_count,
        stats.cancelled_count,
    )
