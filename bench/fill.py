"""Fills a data folder through a real node and waits to be killed. A child process.

`python -m bench.fill FOLDER BYTES RECORDS_PER_BATCH CHECKPOINT`, where CHECKPOINT says what the last checkpoint
covers: `usual` all but half of each active segment, `active` all but the active segments, `none` nothing.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

from bench.batches import batch_pool
from goqueue.log.batch import read_header
from goqueue.log.os_disk import OsDisk
from goqueue.node.clock import SystemClock
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.node import Node
from goqueue.node.partition import Partition

TOPIC = "bench"
PARTITION_COUNT = 3
POOL_COUNT = 16
VALUE_BYTES = 1_000
_NEVER_MS = 10**9


def fill_pool(records_per_batch: int) -> list[bytes]:
    return batch_pool(POOL_COUNT, record_count=records_per_batch, value_bytes=VALUE_BYTES)


async def fill(folder: str, byte_count: int, records_per_batch: int, checkpoint: str) -> None:
    config = NodeConfig(log=LogConfig(checkpoint_interval_ms=_NEVER_MS, cleanup_interval_ms=_NEVER_MS))
    node = Node(config, OsDisk(folder), SystemClock())
    await node.start()
    await node.topics.create(TOPIC, partition_count=PARTITION_COUNT, overrides={})
    pool = fill_pool(records_per_batch)
    counts = [
        await _fill_partition(node, partition, byte_count // PARTITION_COUNT, pool, checkpoint)
        for partition in node._table.get(TOPIC).partitions  # the public API would take minutes
    ]
    print(*counts, flush=True)
    await asyncio.Event().wait()


async def _fill_partition(
    node: Node, partition: Partition, byte_count: int, pool: list[bytes], checkpoint: str
) -> int:
    """The number of batches."""
    await partition.lead()
    log = partition.log
    headers = [read_header(batch) for batch in pool]
    now_ms = SystemClock().now_ms()
    count, written = 0, 0
    while written < byte_count:
        at = count % len(pool)
        partition.append(pool[at], headers[at], now_ms=now_ms)
        written += len(pool[at])
        count += 1
        is_new = log.segments[-1].size == len(pool[at])
        is_last_half = byte_count - written < log.segments[-1].size <= byte_count - written + len(pool[at])
        if (checkpoint == "active" and is_new) or (checkpoint == "usual" and (is_new or is_last_half)):
            await partition.commit.checkpoint()
    partition.commit.request()
    await partition.commit.idle()
    return count


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(fill(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
