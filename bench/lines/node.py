"""A whole node without a listener: eight producers that wait for the fsync, against the disk's own rate.

The node says how many fsyncs it made, so the mean group is known, and in each round the probe runs with groups
of exactly that size. What is left between the two is what the node costs: validation, the append, and the way
to the thread that syncs and back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench.batches import batch_pool, verify_log
from bench.disk_probe import sync_rate
from bench.line import Bound, Goal, Line, Rounds, require, spread
from bench.scale import Run
from bench.workspace import fresh_folder
from goqueue.log.os_disk import OsDisk
from goqueue.model.acks import Acks
from goqueue.node.clock import SystemClock
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node
from goqueue.node.topic_table import OpenTopic

_PRODUCER_COUNT = 8
_POOL_COUNT = 16


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    title: str
    records_per_batch: int
    partition_count: int = 1
    in_flight: int = 1  # batches that each producer has under way
    goal: Goal | None = None


# Producers with one batch under way all wait for the same fsync, so eight batches make a group.
_CASES = (
    _Case("node.all.64k", "groups of about 64 KB", 8, goal=Goal(Bound.RATIO_AT_LEAST, 0.7)),
    _Case("node.all.1m", "groups of about 1 MB", 128, goal=Goal(Bound.RATIO_AT_LEAST, 0.7)),
    _Case("node.all.1m.pipelined", "two batches under way each", 128, in_flight=2),
    _Case("node.all.1m.3p", "the same on three partitions", 128, partition_count=3, in_flight=2),
)


@dataclass(slots=True)
class _Measured:
    """One case over all its rounds."""

    rounds: Rounds = field(default_factory=Rounds)
    group_bytes: list[float] = field(default_factory=list)
    sync_ms: list[float] = field(default_factory=list)
    probe_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Burst:
    bytes: float
    seconds: float
    sync_count: float
    sync_s: float


def run(run: Run) -> list[Line]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return [_line(case, runner.run(_measure(run, case))) for case in _CASES]


def _line(case: _Case, measured: _Measured) -> Line:
    return measured.rounds.line(
        case.name,
        f"acks=all, {_PRODUCER_COUNT} producers, {case.title}",
        "MB/s",
        reference="fdatasync at the same group size",
        goal=case.goal,
        details={
            "group_kb": spread(measured.group_bytes).median / 1024,
            "sync_ms": spread(measured.sync_ms).median,
            "probe_ms": spread(measured.probe_ms).median,
        },
    )


async def _measure(run: Run, case: _Case) -> _Measured:
    pool = batch_pool(_POOL_COUNT, record_count=case.records_per_batch, value_bytes=1_024)
    measured = _Measured()
    for turn in range(run.scale.round_count + 1):
        with fresh_folder(run.folder) as folder:
            burst = await _burst(folder, case, pool, run.scale.round_s)
        group_bytes = burst.bytes / burst.sync_count
        probe = sync_rate(run.folder, int(group_bytes), run.scale.round_s)
        if turn == 0:
            continue  # to warm up
        measured.rounds.add(burst.bytes / burst.seconds / 1e6, probe.mb_per_s)
        measured.group_bytes.append(group_bytes)
        measured.sync_ms.append(burst.sync_s / burst.sync_count * 1_000)
        measured.probe_ms.append(probe.latency_ms(0.5))
    return measured


async def _burst(folder: Path, case: _Case, pool: list[bytes], duration_s: float) -> _Burst:
    node = Node(NodeConfig(), OsDisk(str(folder)), SystemClock())
    await node.start()
    try:
        await node.topics.create("bench", partition_count=case.partition_count, overrides={})
        # What was written is verified in the log itself, and nothing public leads to a log.
        topic = node._table.get("bench")
        for partition in topic.partitions:
            await partition.lead()
        return await _produce(node, topic, pool, case.in_flight * _PRODUCER_COUNT, duration_s)
    finally:
        await node.stop()


async def _produce(
    node: Node, topic: OpenTopic, pool: list[bytes], sender_count: int, duration_s: float
) -> _Burst:
    loop = asyncio.get_running_loop()
    acked: list[dict[int, bytes]] = [{} for _ in topic.partitions]
    before = _counters(node)
    started = loop.time()

    async def send(sender: int) -> None:
        partition = topic.partitions[sender % len(topic.partitions)]
        mine = acked[partition.index]
        turn = sender
        while loop.time() - started < duration_s:
            batch = pool[turn % len(pool)]
            placed = await node.publisher.append_batch(
                topic.facts.name, partition.index, batch, acks=Acks.ALL
            )
            await node.publisher.until_stored(placed)
            mine[placed.stored.base_offset] = batch
            turn += 1

    async with asyncio.TaskGroup() as group:
        for sender in range(sender_count):
            group.create_task(send(sender))
    seconds = loop.time() - started
    after = _counters(node)
    for partition, batches in zip(topic.partitions, acked, strict=True):
        require(partition.log.failure is None, f"the partition stopped: {partition.log.failure}")
        require(partition.log.durable_end == partition.log.end, "acknowledged batches are not durable")
        verify_log(partition.log, batches, "node")
    return _Burst(after[0] - before[0], seconds, after[1] - before[1], after[2] - before[2])


def _counters(node: Node) -> tuple[float, float, float]:
    """Bytes stored, fsyncs made, and seconds they took."""
    value = node.metrics.registry.get_sample_value
    return (
        value("goqueue_broker_published_bytes_total") or 0.0,
        value("goqueue_storage_sync_seconds_count") or 0.0,
        value("goqueue_storage_sync_seconds_sum") or 0.0,
    )
