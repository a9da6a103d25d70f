"""Topics for the pipeline's lines: in a data folder as a broker leaves it, in a running broker, and read back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bench.spark_rows import Content
from goqueue.client.kafka import BatchSender, KafkaCluster
from goqueue.log.batch import read_header
from goqueue.log.compression import Codec
from goqueue.log.os_disk import OsDisk
from goqueue.node.clock import SystemClock
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.node import Node
from goqueue.node.partition import Partition
from goqueue.pipeline.arrow.decode import SpanDecoder
from goqueue.pipeline.source.options import Access
from goqueue.pipeline.source.transports import open_transport
from goqueue.pipeline.span import Place, Span

_NEVER_MS = 10**9
_YIELD_COUNT = 16  # batches between which others may run


@dataclass(frozen=True, slots=True)
class Filled:
    """A topic to be made."""

    name: str
    content: Content
    codec: Codec = Codec.NONE
    settings: Mapping[str, str] | None = None


def fill_folder(folder: Path, topics: list[Filled]) -> None:
    """Through a node that is stopped afterwards, so that all of it is behind a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(_fill(folder, topics))


def fill_broker(address: str, topic: Filled) -> None:
    """By Kafka's protocol, into a topic that exists."""
    encoded = topic.content.pool.encoded(topic.codec)
    with KafkaCluster(address) as cluster, BatchSender(cluster, acks="leader") as sender:
        for index in topic.content.order.tolist():
            for partition in range(topic.content.partition_count):
                sender.send(topic.name, partition, encoded[index])


def read_topic(access: Access, topic: str, columns: tuple[str, ...]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Every committed row, without Spark: partition and rows."""
    with closing(open_transport(access)) as transport:
        places = [Place(topic, index) for index in range(transport.topics()[topic])]
        starts, ends = transport.earliest(places), transport.latest(places, committed=True)
        for place in places:
            span = Span(*place, starts[place], ends[place])
            decoder = SpanDecoder(span, columns, committed=True)
            for batch in decoder.decode(transport.read(span, committed=True)):
                yield place.partition, batch


async def _fill(folder: Path, topics: list[Filled]) -> None:
    config = NodeConfig(log=LogConfig(cleanup_interval_ms=_NEVER_MS))  # a job is to compact it
    node = Node(config, OsDisk(str(folder)), SystemClock())
    await node.start()
    try:
        for topic in topics:
            await node.topics.create(
                topic.name, partition_count=topic.content.partition_count, overrides=topic.settings or {}
            )
            encoded = topic.content.pool.encoded(topic.codec)
            for partition in node._table.get(
                topic.name
            ).partitions:  # no listener takes whole batches in here
                await _append(partition, encoded, topic.content)
    finally:
        await node.stop()


async def _append(partition: Partition, encoded: list[bytes], content: Content) -> None:
    await partition.lead()
    headers = [read_header(batch) for batch in encoded]
    for turn, index in enumerate(content.order.tolist()):
        partition.append(encoded[index], headers[index], now_ms=content.pool.timestamp_ms)
        if turn % _YIELD_COUNT == 0:
            partition.commit.request()
            await asyncio.sleep(0)
    partition.commit.request()
    await partition.commit.idle()
