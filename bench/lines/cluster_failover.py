"""How long a partition takes no writes when its leader dies by kill -9: from the last acknowledgement before to the first after.

One idempotent producer sends to the partition every 5 ms. A node that was killed is started again and in sync before the next is
killed. In the end everything that was acknowledged must be there, once. `leader`: the controller is another node, and lives.
`both`: the node was the controller, too.

`controller`: how long nothing is decided when the controller dies, from the kill to a change of a topic's settings that is accepted. The
setting is read back in the end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from bench.cluster_acks import AckedStream, verify
from bench.cluster_bench import ClusterSide
from bench.cluster_settings import is_set, value_of_setting
from bench.kafka_lines import compare
from bench.line import Bound, Goal, Line, require
from bench.peers.clusters import Timing
from bench.peers.kafka_cluster import KafkaCluster
from bench.scale import Run
from bench.sides import interleave

_PARTITION_COUNT = 6
_BEFORE_COUNT = 200  # acknowledged before the kill
_AFTER_S = 0.5
_TIMEOUT_S = 60.0
_GAP_S_MAX = 2.0
_PAUSE_S = 0.02
_RETENTION_MS = 86_400_000
_SETTLE_S = 1.0  # after a node is back: its leaderships have moved, and clients know


@dataclass(slots=True)
class _Topic:
    """Of one side, over all kills of a line."""

    name: str
    next: int = 0  # message


def run_fast(run: Run) -> list[Line]:
    with run.cluster.sides(Timing.FAST) as sides:
        goal = Goal(Bound.VALUE_BELOW, _GAP_S_MAX)
        count = run.scale.cluster.kill_count
        lines = [
            *_lines(run, sides, Timing.FAST, "leader", count, goal),
            *_lines(run, sides, Timing.FAST, "both", count, goal),
        ]
        return lines + _controller_lines(run, sides, count, goal)


def run_default(run: Run) -> list[Line]:
    with run.cluster.sides(Timing.DEFAULT) as sides:
        return _lines(run, sides, Timing.DEFAULT, "leader", run.scale.cluster.slow_kill_count, None)


def _lines(
    run: Run, sides: Sequence[ClusterSide], timing: Timing, victim: str, count: int, goal: Goal | None
) -> list[Line]:
    topics = {side.name: _Topic(run.cluster.fresh_name()) for side in sides}
    for side in sides:
        side.cluster.create_topic(topics[side.name].name, partition_count=_PARTITION_COUNT)
    taken = interleave(sides, count, lambda side: _kill(side, topics[side.name], victim))
    for side in sides:
        topic = topics[side.name]
        verify(side.cluster.address, topic.name, _PARTITION_COUNT, topic.next)
        side.cluster.delete_topic(topic.name)
    what = "the leader" if victim == "leader" else "the leader that is the controller, too,"
    title = f"kill -9 of {what} of a partition, `{timing}` timings: longest time between acknowledgements"
    return _compared(sides, taken, f"{timing}.{victim}", title, goal)


def _controller_lines(run: Run, sides: Sequence[ClusterSide], count: int, goal: Goal) -> list[Line]:
    topics = {side.name: _Topic(run.cluster.fresh_name(), next=_RETENTION_MS) for side in sides}
    for side in sides:
        side.cluster.create_topic(topics[side.name].name, partition_count=_PARTITION_COUNT)
    taken = interleave(sides, count, lambda side: _kill_controller(side, topics[side.name]))
    for side in sides:
        side.cluster.delete_topic(topics[side.name].name)
    title = f"kill -9 of the controller, `{Timing.FAST}` timings: until a change of a topic's settings is accepted"
    return _compared(sides, taken, f"{Timing.FAST}.controller", title, goal)


def _compared(
    sides: Sequence[ClusterSide],
    taken: Mapping[str, Sequence[float]],
    name: str,
    title: str,
    goal: Goal | None,
) -> list[Line]:
    lines = compare(
        sides,
        taken,
        name=f"cluster.failover.{name}",
        title=title,
        unit="s",
        value=lambda gap_s: gap_s,
        figures={},
        goals={KafkaCluster.name: goal} if goal else {},
    )
    return [structs.replace(line, details=line.details | _extremes(taken)) for line in lines]


def _kill_controller(side: ClusterSide, topic: _Topic) -> float:
    cluster = side.cluster
    controller = cluster.controller()
    topic.next += 1
    killed = time.monotonic()
    cluster.kill(controller)
    while not is_set(cluster.admin(), topic.name, "retention.ms", topic.next):
        require(time.monotonic() - killed < _TIMEOUT_S, f"nothing was decided for {_TIMEOUT_S:g} s")
        time.sleep(_PAUSE_S)
    gap_s = time.monotonic() - killed
    cluster.start(controller)
    cluster.until_listening(controller)
    cluster.until_in_sync([topic.name])
    found = value_of_setting(cluster.admin(), topic.name, "retention.ms")
    require(found == str(topic.next), f"retention.ms was set to {topic.next}, and is {found}")
    time.sleep(_SETTLE_S)
    return gap_s


def _extremes(taken: Mapping[str, Sequence[float]]) -> dict[str, float | str]:
    found: dict[str, float | str] = {}
    for name, gaps in taken.items():
        found |= {f"{name}_most_s": max(gaps), f"{name}_kills": len(gaps)}
    return found


def _kill(side: ClusterSide, topic: _Topic, victim: str) -> float:
    """One kill; the gap."""
    cluster = side.cluster
    cluster.elect_preferred(topic.name)
    controller = cluster.controller()
    partition, leader = next(
        (index, one.leader)
        for index, one in sorted(cluster.partitions(topic.name).items())
        if (one.leader == controller) == (victim == "both")
    )
    stream = AckedStream(cluster.address, topic.name, partition, topic.next)
    stream.run_until(lambda: len(stream.acked) >= _BEFORE_COUNT, timeout_s=_TIMEOUT_S)
    killed = time.monotonic()
    cluster.kill(leader)
    sent_count = stream.next - topic.next
    stream.run_until(lambda: len(stream.acked) > sent_count, timeout_s=_TIMEOUT_S)
    stream.run_for(_AFTER_S)
    stream.finish()
    topic.next = stream.next
    cluster.start(leader)
    cluster.until_listening(leader)
    cluster.until_in_sync([topic.name])
    time.sleep(_SETTLE_S)
    return stream.longest_gap_s(killed)
