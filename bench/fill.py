"""Fills a data folder through a real node, then waits to be killed. A child process.

`python -m bench.fill FOLDER BYTES_PER_PARTITION RECORDS_PER_BATCH VALUE_BYTES COVERED`. It writes as many batches as fit and
prints how many that were for each partition.
"""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum

import uvloop

from bench.batches import batch_pool
from goqueue.log.batch import read_header
from goqueue.log.os_disk import OsDisk
from goqueue.log.partition_log import PartitionLog
from goqueue.node.clock import SystemClock
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.node import Node
from goqueue.node.partition import Partition

TOPIC = "bench"
PARTITION_COUNT = 3
_POOL_COUNT = 16
_NEVER_MS = 10**9


class Covered(StrEnum):
    """What the last checkpoint before the kill covers."""

    EVERYTHING = "everything"  # a clean stop, not a kill
    HALF_OF_ACTIVE = "half_of_active"
    SEALED = "sealed"  # all but the active segments
    NOTHING = "nothing"


def fill_pool(records_per_batch: int, value_bytes: int) -> list[bytes]:
    return batch_pool(_POOL_COUNT, record_count=records_per_batch, value_bytes=value_bytes)


async def fill(folder: str, partition_bytes: int, pool: list[bytes], covered: Covered) -> None:
    # Only the checkpoints that the case asks for: a flush saves one too, once a segment was sealed.
    config = NodeConfig(
        log=LogConfig(
            flush_interval_ms=_NEVER_MS, checkpoint_interval_ms=_NEVER_MS, cleanup_interval_ms=_NEVER_MS
        )
    )
    node = Node(config, OsDisk(folder), SystemClock())
    await node.start()
    await node.topics.create(TOPIC, partition_count=PARTITION_COUNT, overrides={})
    counts = [
        await _fill_partition(partition, partition_bytes, pool, covered)
        for partition in node._table.get(TOPIC).partitions  # no listener takes whole batches yet
    ]
    if covered is Covered.EVERYTHING:
        await node.stop()
    print(*counts, flush=True)
    await asyncio.Event().wait()


async def _fill_partition(
    partition: Partition, partition_bytes: int, pool: list[bytes], covered: Covered
) -> int:
    await partition.lead()
    log = partition.log
    headers = [read_header(batch) for batch in pool]
    now_ms = SystemClock().now_ms()
    count, written, is_halved = 0, 0, False
    while written + len(pool[count % len(pool)]) <= partition_bytes:
        at = count % len(pool)
        partition.append(pool[at], headers[at], now_ms=now_ms)
        written += len(pool[at])
        count += 1
        if covered is Covered.SEALED and log.segments[-1].size == len(pool[at]):
            await partition.commit.checkpoint()
        if covered is Covered.HALF_OF_ACTIVE and not is_halved and _is_half(log, partition_bytes - written):
            is_halved = True
            await partition.commit.checkpoint()
    partition.commit.request()
    await partition.commit.idle()
    return count


def _is_half(log: PartitionLog, left_bytes: int) -> bool:
    """Whether all that is left goes into the active segment, and is no more than it holds."""
    size = log.segments[-1].size
    return left_bytes <= size and size + left_bytes <= log.settings.segment_bytes


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        contents = fill_pool(int(sys.argv[3]), int(sys.argv[4]))
        runner.run(fill(sys.argv[1], int(sys.argv[2]), contents, Covered(sys.argv[5])))
