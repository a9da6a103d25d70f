"""Topics with `scaling=keyed` on nodes in virtual time."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from goqueue.core.cluster.commands import FencePartition, ShrinkTopic
from goqueue.core.cluster.scaling import Scaling
from goqueue.core.group.commands import CommitOffsets, Heartbeat, JoinGroup, NewOffset, SyncGroup
from goqueue.core.group.protocol_assignment import assigned_partitions
from goqueue.model.errors import RebalanceInProgress
from goqueue.node.node import Node

TIMEOUT_S = 200.0  # of virtual time
PAUSE_S = 0.1


def scaling_of(node: Node, topic: str = "orders") -> Scaling:
    found = node._metadata.catalog.scaling(topic)
    assert found is not None
    return found


async def grow(node: Node, partition_count: int, topic: str = "orders") -> None:
    """Back when every old partition has its fence."""
    await node.topics.grow(topic, partition_count)
    await fenced(node, topic)


async def begin_shrinking(
    node: Node, partition_count: int, topic: str = "orders", *, discards_read: bool = True
) -> None:
    """Back when every partition has said where it ends."""
    await node._metadata.execute(ShrinkTopic(topic, partition_count, discards_read))
    await fenced(node, topic)


async def fenced(node: Node, topic: str) -> None:
    """Until every partition has its fence, where its log ends."""
    catalog = node._metadata.catalog
    id = catalog.topic(topic).id
    while scaling_of(node, topic).unfenced:
        for index in scaling_of(node, topic).unfenced:
            if scaling_of(node, topic).may_fence(index):
                epoch = catalog.partition(topic, index).leader_epoch
                end = node.topics.partition(topic, index).high_watermark
                await node._metadata.execute(FencePartition(topic, id, index, epoch, end))


async def until(is_so: Callable[[], bool], what: str) -> None:
    for _ in range(round(TIMEOUT_S / PAUSE_S)):
        if is_so():
            return
        await asyncio.sleep(PAUSE_S)
    raise AssertionError(f"not within {TIMEOUT_S} s: {what}")


class Classic:
    """A member that is alone in its group, assigns itself everything, and joins again when it is told to."""

    def __init__(self, node: Node, partition_count: int, topic: str = "orders") -> None:
        self.node = node
        self.partition_count = partition_count
        self.topic = topic
        self.member_id = ""
        self.generation = -1
        self.given: list[int] = []
        self.join_count = 0

    async def join(self) -> None:
        self.join_count += 1
        name = struct.pack(">h", len(self.topic)) + self.topic.encode()
        subscription = struct.pack(">hi", 0, 1) + name + struct.pack(">i", -1)
        command = JoinGroup(
            group_id="c",
            member_id=self.member_id,
            fresh_id="",
            client_id="client",
            client_host="here",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(("range", subscription),),
        )
        joined = await self.node.groups.join(command)
        self.member_id, self.generation = joined.member_id, joined.generation
        count = self.partition_count
        assignment = (
            struct.pack(">hi", 0, 1)
            + name
            + struct.pack(f">i{count}i", count, *range(count))
            + struct.pack(">i", -1)
        )
        synced = await self.node.groups.sync(
            SyncGroup("c", self.member_id, self.generation, assignments=((self.member_id, assignment),))
        )
        self.given = [index for _, index in assigned_partitions(synced.assignment)]

    async def beat(self) -> None:
        try:
            await self.node.groups.heartbeat(Heartbeat("c", self.member_id, self.generation))
        except RebalanceInProgress:
            await self.join()

    async def commit(self, partition: int, offset: int) -> None:
        new = (NewOffset(self.topic, partition, offset),)
        await self.node.groups.commit(CommitOffsets("c", new, self.member_id, self.generation))

    async def until_given(self, *wanted: int) -> None:
        for _ in range(100):
            await self.beat()
            if self.given == list(wanted):
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"{self.given} instead of {wanted}")
