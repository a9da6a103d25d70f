"""From the start of a node's process until all of its 1,000 partitions are in sync again, after a clean stop and after kill -9.

Every partition holds a message, and nothing came while the node was away.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bench.cluster_acks import verify
from bench.cluster_bench import ClusterSide
from bench.kafka_client import Sender
from bench.kafka_lines import compare
from bench.kafka_plans import Target
from bench.kafka_values import value_of
from bench.line import Line
from bench.peers.clusters import NODES, Timing
from bench.scale import Run
from bench.sides import interleave

_VALUE_BYTES = 100
_SEND_S = 60.0


def run(run: Run) -> list[Line]:
    scale, lines = run.scale.cluster, []
    count = scale.start_partition_count
    with run.cluster.sides(Timing.FAST) as sides:
        topics = {side.name: _filled(run, side, count) for side in sides}
        for is_clean in (True, False):
            taken = interleave(
                sides,
                scale.start_count,
                partial(_restart, topics, is_clean=is_clean),
            )
            how, text = ("clean", "a clean stop") if is_clean else ("killed", "kill -9")
            lines += compare(
                sides,
                taken,
                name=f"cluster.start.{count}p.{how}",
                title=f"a node of three with {count:,} partitions is in sync with all of them after {text}",
                unit="s",
                value=lambda times: times[1],
                figures={"listening_s": lambda times: times[0]},
            )
        for side in sides:
            verify(side.cluster.address, topics[side.name], count, count)
    return lines


def _filled(run: Run, side: ClusterSide, count: int) -> str:
    """A topic with a message in every partition."""
    name, cluster = run.cluster.fresh_name(), side.cluster
    cluster.create_topic(name, partition_count=count)
    sender = Sender(Target(cluster.address, cluster.pids, name, count), "all")
    sender.send_to((index, value_of(index, _VALUE_BYTES)) for index in range(count))
    sender.finish(_SEND_S)
    return name


def _restart(topics: Mapping[str, str], side: ClusterSide, *, is_clean: bool) -> tuple[float, float]:
    """Until it listens, and until it is in sync; seconds."""
    cluster, node, topic = side.cluster, NODES[-1], topics[side.name]
    if is_clean:
        cluster.stop(node)
    else:
        cluster.kill(node)
        cluster.until_given_up(node, topic)
    began = cluster.start(node)
    return cluster.until_listening(node) - began, cluster.until_in_sync([topic]) - began
