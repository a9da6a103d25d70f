"""A power cut may tear the last batch of an internal log, which nobody was told of: its owner comes up all the same."""

from __future__ import annotations

from random import Random

import pytest

from goqueue.sim.broker import SimBroker
from goqueue.sim.disk import SimDisk
from goqueue.sim.kafka.client import SimKafkaClient
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.platter import FileNode
from goqueue.wire.schema import request_schema

TORN_BYTES = 60


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets"])
def test_a_torn_batch_of_an_internal_log_keeps_nobody_down(topic: str) -> None:
    async def main(loop: SimLoop) -> None:
        disk = SimDisk(Random(1), stall=loop.stall)
        broker = SimBroker(loop, disk)
        assert await broker.start()
        await _use(topic)
        await broker.crash(power_cut=True)
        assert _tear(disk, topic)
        assert await broker.start()
        assert broker.problems == []
        await _use(topic)
        await broker.crash(power_cut=False)

    run(main, seed=1)


async def _use(topic: str) -> None:
    """Something that writes to the internal topic, and must be answered without an error."""
    client = SimKafkaClient("x")
    if topic == "__transaction_state":
        answer = await client.call("init_producer_id", 4, transactional_id="x", transaction_timeout_ms=5_000)
        assert answer.error_code == 0
    else:
        named = request_schema("metadata").classes["MetadataRequestTopic"](name="orders")
        await client.call("metadata", 4, topics=(named,), allow_auto_topic_creation=True)
        kinds = request_schema("offset_commit").classes
        place = kinds["OffsetCommitRequestPartition"](partition_index=0, committed_offset=5)
        topic_commits = kinds["OffsetCommitRequestTopic"](name="orders", partitions=(place,))
        answer = await client.call(
            "offset_commit",
            5,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=(topic_commits,),
        )
        assert answer.topics[0].partitions[0].error_code == 0
    client.close()


def _tear(disk: SimDisk, topic: str) -> bool:
    """Zeros where the end of the newest batch was; whether there was one."""
    torn = False
    for path, content in disk.snapshot().items():
        if path.startswith(f"logs/{topic}/") and path.endswith(".log") and content:
            node = disk.platter.find(path)
            assert isinstance(node, FileNode)
            for data in (node.content, node.durable):
                data[-TORN_BYTES:] = bytes(TORN_BYTES)
            torn = True
    return torn
