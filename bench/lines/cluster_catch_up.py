"""How fast a node that was away gets what came meanwhile: MB of its own files per second, while the node is otherwise idle.

The node is stopped, the others take the messages with acks=all, the node is started. Its files are watched: the rate is that
between a twentieth and nineteen twentieths of the bytes. In the end its files must have as many bytes as those of a leader, and every
partition all its replicas in sync.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from bench.child import cpu_s
from bench.cluster_bench import ClusterSide
from bench.kafka_lines import compare
from bench.kafka_load import KafkaLoad
from bench.kafka_plans import Consume, Produce
from bench.line import Line, require
from bench.peers.clusters import NODES, Cluster, Timing
from bench.scale import Run
from bench.sides import interleave

_VALUE_BYTES = 1_024
_PARTITION_COUNT = 3
_LOOK_S = 0.01
_TIMEOUT_S = 120.0
_SHARES = (0.05, 0.95)


@dataclass(frozen=True, slots=True)
class _Copy:
    mb_per_s: float
    in_sync_s: float  # from the start of its process
    cpu_s: float  # of the node that copies, from the start of its process
    gigabytes: float


def run(run: Run) -> list[Line]:
    with run.cluster.sides(Timing.DEFAULT) as sides, KafkaLoad() as load:
        run.cluster.warm_up(load, sides, run.scale.cluster.warm_count)
        taken = interleave(sides, run.scale.cluster.copy_round_count, lambda side: _measure(run, load, side))
    return compare(
        sides,
        taken,
        name="cluster.catch_up",
        title="a node that was away gets what came meanwhile, 1 KB messages in 3 partitions",
        unit="MB/s",
        value=lambda copy: copy.mb_per_s,
        figures={
            "gigabytes": lambda copy: copy.gigabytes,
            "from_start_to_in_sync_s": lambda copy: copy.in_sync_s,
            "node_cpu_s_from_start": lambda copy: copy.cpu_s,
        },
    )


def _measure(run: Run, load: KafkaLoad, side: ClusterSide) -> _Copy:
    cluster, count = side.cluster, run.scale.cluster.copy_count
    with run.cluster.topic(side, partition_count=_PARTITION_COUNT) as target:
        node = NODES[-1]
        cluster.stop(node)
        others = [one for one in NODES if one != node]
        load.produce(Produce(structs.replace(target, pids=cluster.pids), count, _VALUE_BYTES, "all"))
        size = _log_bytes(cluster.logs[others[0]], target.topic)
        require(size >= count * _VALUE_BYTES, f"only {size} bytes are stored")
        began = cluster.start(node)
        samples = _watch(cluster, node, target.topic, size)
        cpu_used_s = cpu_s(cluster.pid(node))
        in_sync = cluster.until_in_sync([target.topic])
        own = _log_bytes(cluster.logs[node], target.topic)
        require(own == size, f"the node has {own} bytes of a log, the others {size}")
        load.consume(
            Consume(structs.replace(target, pids=cluster.pids), count, _VALUE_BYTES, is_everything_kept=True)
        )
    return _Copy(_rate(samples, size) / 1e6, in_sync - began, cpu_used_s, size / 1e9)


def _watch(cluster: Cluster, node: int, topic: str, size: int) -> list[tuple[float, int]]:
    """Until it has all: times and bytes."""
    samples: list[tuple[float, int]] = []
    deadline = time.monotonic() + _TIMEOUT_S
    while not samples or samples[-1][1] < size:
        found = _log_bytes(cluster.logs[node], topic)
        require(time.monotonic() < deadline, f"the node has {found} of {size} bytes after {_TIMEOUT_S:g} s")
        samples.append((time.monotonic(), found))
        time.sleep(_LOOK_S)
    return samples


def _rate(samples: list[tuple[float, int]], size: int) -> float:
    """Bytes per second in the middle."""
    low, high = (next(one for one in samples if one[1] >= share * size) for share in _SHARES)
    if low == high:  # it all came between two looks
        before = next(one for one in reversed(samples) if one[1] < low[1])
        return (low[1] - before[1]) / (low[0] - before[0])
    return (high[1] - low[1]) / (high[0] - low[0])


def _log_bytes(logs: Path, topic: str) -> int:
    """Of a node's partitions of the topic, in the folders of either side."""
    files = [*logs.glob(f"{topic}/*/*.log"), *logs.glob(f"{topic}-*/*.log")]
    return sum(path.stat().st_size for path in files)
