"""A fourth member joins a group of three that reads 30 partitions, and leaves it: how long until everybody has its share, and
whether partitions that stay where they are stand still meanwhile.

By the consumer protocol (KIP-848) and by the classic one with the cooperative-sticky assignor. Members hear of a change in the
answer to their next heartbeat, so both clusters and clients have the same interval of 250 ms here; by default it is 3 to 5 s and
everything takes as long. A message comes to every partition every 20 ms, which is the least pause that can be seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench.cluster_bench import ClusterSide
from bench.group_members import Member, Receipts, Traffic, are_balanced, wait_until
from bench.kafka_lines import compare
from bench.line import Bound, Goal, Line, require
from bench.peers.clusters import Timing
from bench.peers.kafka_cluster import KafkaCluster
from bench.peers.our_cluster import OurCluster
from bench.scale import Run
from bench.sides import interleave

_PARTITION_COUNT = 30
_MEMBER_COUNT = 3
_HEARTBEAT_MS = 250
_QUIET_S = 2.0  # before and after
_AFTER_S = 0.3
_REBALANCE_S_MAX = 1.0
_PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "consumer": {"group.protocol": "consumer"},
    "cooperative": {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": _HEARTBEAT_MS,
        "session.timeout.ms": 10_000,
    },
}


@dataclass(frozen=True, slots=True)
class _Change:
    seconds: float
    moved_count: int
    pause_s: float  # the longest, of a partition that did not move
    moved_pause_s: float
    usual_pause_s: float  # before the change, over as long a time


@dataclass(frozen=True, slots=True)
class _Round:
    join: _Change
    leave: _Change


def run(run: Run) -> list[Line]:
    lines: list[Line] = []
    ours, kafka = (
        OurCluster(group_heartbeat_ms=_HEARTBEAT_MS),
        KafkaCluster(group_heartbeat_ms=_HEARTBEAT_MS),
    )
    with run.cluster.sides(Timing.DEFAULT, ours=ours, peers=[kafka]) as sides:
        for protocol in _PROTOCOLS:
            taken = interleave(
                sides,
                run.scale.cluster.rebalance_count,
                partial(_measure, run, protocol=protocol),
            )
            for kind, text in (("join", "joins"), ("leave", "leaves")):
                changes = {name: [getattr(one, kind) for one in rounds] for name, rounds in taken.items()}
                lines += _lines(sides, changes, f"{protocol}.{kind}", f"a fourth member {text}, {protocol}")
    return lines


def _lines(sides: list[ClusterSide], changes: dict[str, list[_Change]], name: str, title: str) -> list[Line]:
    whole = compare(
        sides,
        changes,
        name=f"cluster.rebalance.{name}",
        title=f"{title} protocol: until all have their share of {_PARTITION_COUNT} partitions",
        unit="s",
        value=lambda change: change.seconds,
        figures={
            "moved_partitions": lambda change: change.moved_count,
            "pause_of_moved_s": lambda change: change.moved_pause_s,
        },
        goals={KafkaCluster.name: Goal(Bound.VALUE_BELOW, _REBALANCE_S_MAX)},
    )
    unmoved = compare(
        sides,
        changes,
        name=f"cluster.rebalance.{name}.unmoved",
        title=f"{title} protocol: longest pause of a partition that stays where it is",
        unit="s",
        value=lambda change: change.pause_s,
        figures={"usual_pause_s": lambda change: change.usual_pause_s},
    )
    return [*whole, *unmoved]


def _measure(run: Run, side: ClusterSide, *, protocol: str) -> _Round:
    with run.cluster.topic(side, partition_count=_PARTITION_COUNT) as target:
        receipts = Receipts()
        settings = {
            "bootstrap.servers": target.address,
            "group.id": f"group-{target.topic}",
            "auto.offset.reset": "latest",
            **_PROTOCOLS[protocol],
        }
        traffic = Traffic(target.address, target.topic, _PARTITION_COUNT)
        members = [Member(settings, target.topic, receipts) for _ in range(_MEMBER_COUNT)]
        newcomer = Member(settings, target.topic, receipts)
        traffic.start()
        try:
            for member in members:
                member.start()
            wait_until(lambda: are_balanced(members, _PARTITION_COUNT), "the first assignment")
            time.sleep(_QUIET_S)
            join = _change(newcomer.start, members, [*members, newcomer], receipts)
            time.sleep(_QUIET_S)
            leave = _change(newcomer.leave, [*members, newcomer], members, receipts)
        finally:
            for member in (*members, newcomer):
                member.leave()
            traffic.stop()
            for member in (*members, newcomer):
                if member.ident is not None:
                    member.join(30.0)
        failures = [member.failure for member in (*members, newcomer) if member.failure is not None]
        require(not failures, f"a member could not read: {failures[:1]}")
        require(len(receipts.times) == _PARTITION_COUNT, "not every partition was read")
    return _Round(join, leave)


def _change(
    begin: Callable[[], None], before: Sequence[Member], after: Sequence[Member], receipts: Receipts
) -> _Change:
    """What `begin` sets off, until those who are there after it have everything."""
    owners = _owners(before)
    began = time.monotonic()
    begin()
    done = wait_until(lambda: are_balanced(after, _PARTITION_COUNT), "the rebalance")
    time.sleep(_AFTER_S)
    moved = [index for index, owner in _owners(after).items() if owners.get(index) is not owner]
    unmoved = [index for index in range(_PARTITION_COUNT) if index not in moved]
    end = time.monotonic()

    def pause_s(partitions: Sequence[int], since: float, until: float) -> float:
        return max((receipts.longest_gap_s(index, since, until) for index in partitions), default=0.0)

    return _Change(
        done - began,
        len(moved),
        pause_s(unmoved, began, end),
        pause_s(moved, began, end),
        pause_s(unmoved, began - (end - began), began),
    )


def _owners(members: Sequence[Member]) -> dict[int, Member]:
    return {index: member for member in members for index in member.partitions}
