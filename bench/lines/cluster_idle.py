"""What heartbeats and fetches cost while nobody sends anything: processor time of three nodes that share many quiet partitions.

Each of the partitions is on all three nodes. The value is the share of one core that the busiest node takes; with more and more
partitions it becomes a curve. A side that does not get its partitions made in the time that a line may take leaves the curve
there, and the report says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.child import cpu_s
from bench.cluster_bench import ClusterSide
from bench.kafka_lines import compare
from bench.line import BenchFailed, Line
from bench.peers.clusters import NODES, Timing
from bench.received import received_segments
from bench.scale import Run

_TOPIC_PARTITIONS = 500  # of one topic
_SETTLE_S = 5.0
_MADE_S_MAX = 120.0


@dataclass(frozen=True, slots=True)
class _Idle:
    shares: tuple[float, ...]  # of one core, by node
    requests_per_s: tuple[float, ...]  # that came to each node; 0 where they cannot be counted
    made_s: float  # until the partitions that were added were led and in sync

    @property
    def most(self) -> float:
        return max(self.shares)


def run(run: Run) -> list[Line]:
    lines: list[Line] = []
    with run.cluster.sides(Timing.DEFAULT) as sides:
        left, topics = list(sides), {side.name: list[str]() for side in sides}
        before = 0
        for count in run.scale.cluster.idle_partition_counts:
            taken = _measure_all(run, left, topics, count - before, count)
            left = [side for side in left if side.name in taken]
            if not left or left[0] is not sides[0]:
                break
            lines += _lines(left, taken, count)
            before = count
    return lines


def _measure_all(
    run: Run, sides: Sequence[ClusterSide], topics: dict[str, list[str]], added: int, count: int
) -> dict[str, list[_Idle]]:
    """By side; without those that did not make their partitions in time."""
    taken: dict[str, list[_Idle]] = {}
    for side in sides:
        began = time.monotonic()
        try:
            _make(run, side, topics[side.name], added)
        except BenchFailed as failure:
            run.cluster.absent[f"{side.name} with {count:,} idle partitions"] = str(failure)
            continue
        made_s = time.monotonic() - began
        time.sleep(_SETTLE_S)
        taken[side.name] = [_observe(side, run.scale.cluster.idle_s, made_s)]
    return taken


def _make(run: Run, side: ClusterSide, topics: list[str], added: int) -> None:
    deadline = time.monotonic() + _MADE_S_MAX
    for first in range(0, added, _TOPIC_PARTITIONS):
        name = run.cluster.fresh_name()
        side.cluster.create_topic(name, partition_count=min(_TOPIC_PARTITIONS, added - first))
        topics.append(name)
        if time.monotonic() > deadline:
            raise BenchFailed(f"{first + _TOPIC_PARTITIONS} of {added} were made in {_MADE_S_MAX:g} s")
    side.cluster.until_in_sync(topics)


def _observe(side: ClusterSide, seconds: float, made_s: float) -> _Idle:
    cluster, began = side.cluster, time.monotonic()
    cpu_before = [cpu_s(cluster.pid(node)) for node in NODES]
    received_before = [received_segments(cluster.ports[node]) or 0 for node in NODES]
    time.sleep(seconds)
    cpu_after = [cpu_s(cluster.pid(node)) for node in NODES]
    received_after = [received_segments(cluster.ports[node]) or 0 for node in NODES]
    passed = time.monotonic() - began
    return _Idle(
        tuple((after - before) / passed for before, after in zip(cpu_before, cpu_after, strict=True)),
        tuple(
            max(0, after - before) / passed
            for before, after in zip(received_before, received_after, strict=True)
        ),
        made_s,
    )


def _lines(sides: Sequence[ClusterSide], taken: dict[str, list[_Idle]], count: int) -> list[Line]:
    return compare(
        sides,
        taken,
        name=f"cluster.idle.{count}p",
        title=f"share of a core of the busiest of three idle nodes with {count:,} partitions on each",
        unit="cores",
        value=lambda idle: idle.most,
        figures={
            "all_nodes_share": lambda idle: sum(idle.shares),
            "requests_per_s_per_node": lambda idle: sum(idle.requests_per_s) / len(NODES),
            "made_s": lambda idle: idle.made_s,
        },
    )
