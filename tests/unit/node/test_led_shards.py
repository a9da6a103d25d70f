"""Shards of coordinators: they begin with the leadership of their log, answer what is committed, and end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from prometheus_client import CollectorRegistry
from tests.support.leaderships import PlayedLeadership, followers_of, led
from tests.support.nodes import create, in_one_life

from goqueue.core.group.commands import (
    CommitOffsets,
    FetchedOffsets,
    FetchOffsets,
    JoinGroup,
    NewOffset,
)
from goqueue.core.group.config import GroupConfig
from goqueue.core.group.events import Event, GroupCodec
from goqueue.core.group.shard import GroupShard
from goqueue.log.batch import encode_batch
from goqueue.model.cluster_errors import (
    CoordinationUnknown,
    CoordinatorLoading,
    NotCoordinator,
    NotLeader,
    ReplicationUnknown,
)
from goqueue.model.errors import GoQueueError, StorageError
from goqueue.model.record import NewRecord
from goqueue.node.groups.metrics import GroupMetrics
from goqueue.node.groups.shard import OwnedGroups
from goqueue.node.led_shards import LedShards
from goqueue.node.node import Node
from goqueue.node.partition import Partition
from goqueue.node.state_log import StateLog

COMMIT = CommitOffsets("workers", (NewOffset("orders", 0, 7),))
FETCH = FetchOffsets("workers", (("orders", (0,)),))
JOIN = JoinGroup(
    group_id="workers",
    member_id="",
    fresh_id="m",
    client_id="c",
    client_host="h",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=10_000,
    protocol_type="consumer",
    protocols=(("range", b""),),
    instance_id=None,
    must_know_id=False,
    may_skip_assignment=True,
)


def shard_of(node: Node, partition: Partition) -> OwnedGroups:
    """For the leadership that the partition has now."""

    def ignore(events: Sequence[Event], is_due: bool) -> None:
        pass

    return OwnedGroups(
        StateLog(partition, GroupCodec(), node.clock, partition.leadership),
        lambda: GroupShard(GroupConfig(initial_rebalance_delay_ms=3_000), node._table),
        node.clock,
        GroupMetrics(CollectorRegistry()),
        node._spawn,
        lambda shard: None,
        ignore,
    )


async def loaded(node: Node, partition: Partition) -> OwnedGroups:
    shard = shard_of(node, partition)
    await shard.load()
    return shard


async def offset_in(shard: OwnedGroups) -> int:
    reply = await shard.ask(FETCH)
    assert isinstance(reply, FetchedOffsets)
    return reply.offsets[0].offset


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0.01)


def test_a_new_shard_knows_what_the_one_before_had_committed() -> None:
    async def life(node: Node) -> None:
        await create(node)
        await (await loaded(node, await led(node, 1))).ask(COMMIT)
        assert await offset_in(await loaded(node, await led(node, 2))) == 7

    in_one_life(life)


def test_what_is_not_committed_is_answered_to_nobody_and_unknown_when_leadership_ends() -> None:
    async def life(node: Node) -> None:
        await create(node)
        partition = await led(node, 1)
        shard = await loaded(node, partition)
        followers_of(partition).are_away = True
        asked = [asyncio.ensure_future(shard.ask(one)) for one in (COMMIT, FETCH)]
        await turns()
        assert not any(one.done() for one in asked)
        partition.follow(2, 2)
        for one, refusal in zip(asked, (CoordinationUnknown, NotCoordinator), strict=True):
            with pytest.raises(refusal):  # of the commit nobody here will ever know
                await one

    in_one_life(life)


def test_a_shard_is_loaded_when_all_that_its_log_holds_is_committed() -> None:
    async def life(node: Node) -> None:
        await create(node)
        partition = await led(node, 1)
        former = await loaded(node, partition)
        followers_of(partition).are_away = True
        asked = asyncio.ensure_future(former.ask(COMMIT))
        await turns()
        partition.take_over(PlayedLeadership(2, are_away=True))
        with pytest.raises(CoordinationUnknown):
            await asked
        shard = shard_of(node, partition)
        loading = asyncio.ensure_future(shard.load())
        await turns()
        assert not loading.done()
        partition.raise_watermark(partition.log.end)
        await loading
        assert await offset_in(shard) == 7

    in_one_life(life)


def test_a_shard_of_a_former_leadership_neither_writes_nor_answers() -> None:
    async def life(node: Node) -> None:
        await create(node)
        partition = await led(node, 1)
        former = await loaded(node, partition)
        await former.ask(COMMIT)
        current = await loaded(node, await led(node, 2))
        end = partition.log.end
        for command in (COMMIT, FETCH):
            with pytest.raises(NotCoordinator):
                await former.ask(command)
        assert partition.log.end == end
        assert await offset_in(current) == 7

    in_one_life(life)


def test_who_waits_for_others_to_join_is_sent_away_when_leadership_ends() -> None:
    async def life(node: Node) -> None:
        await create(node)
        shard = await loaded(node, await led(node, 1))
        joining = asyncio.ensure_future(shard.ask(JOIN))
        await turns(2)
        assert not joining.done()
        shard.end(NotCoordinator("another node leads"))
        with pytest.raises(NotCoordinator):
            await joining
        assert shard.next_tick_ms() is None
        with pytest.raises(NotCoordinator):
            shard.current()

    in_one_life(life)


def test_a_partition_that_another_node_leads_takes_no_writes_and_knows_of_none() -> None:
    async def life(node: Node) -> None:
        await create(node)
        partition = await led(node, 1)
        log = StateLog(partition, GroupCodec(), node.clock)
        partition.follow(2, 2)
        with pytest.raises(NotLeader):
            await log.lead()
        with pytest.raises(ReplicationUnknown):
            await log.settled()
        with pytest.raises(ReplicationUnknown):
            await partition.settled(partition.log.high_watermark, under=partition.leadership)

    in_one_life(life)


def test_nothing_is_appended_by_a_leader_that_has_not_begun() -> None:
    """It would be in the log under the epoch of the leader before."""

    async def life(node: Node) -> None:
        await create(node)
        partition = await led(node, 1)
        header, batch = encode_batch([NewRecord(None, b"x")], node.clock.now_ms())
        partition.append(batch, header, now_ms=node.clock.now_ms())
        end, size_bytes = partition.log.end, partition.log.size_bytes

        def refuse_both() -> None:
            with pytest.raises(NotLeader):
                partition.append(batch, header, now_ms=node.clock.now_ms())
            with pytest.raises(NotLeader):
                partition.append_marker(9, 0, is_commit=True, coordinator_epoch=0, now_ms=node.clock.now_ms())
            assert (partition.log.end, partition.log.size_bytes) == (end, size_bytes)

        partition.take_over(PlayedLeadership(2))
        refuse_both()
        leading = asyncio.ensure_future(partition.lead())
        await asyncio.sleep(0)
        assert not leading.done()
        refuse_both()
        await leading
        stored = partition.append(batch, header, now_ms=node.clock.now_ms())
        assert (stored.base_offset, stored.under) == (end, partition.leadership)
        assert partition.log.epochs.latest == 2

    in_one_life(life)


# ---------------------------------------------------------------- the shards of a node


class PlayedShard:
    def __init__(self, failure: GoQueueError | None = None) -> None:
        self.failure = failure
        self.may_end = asyncio.Event()
        self.ended: GoQueueError | None = None
        self.load_count = 0

    async def load(self) -> None:
        self.load_count += 1
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        await self.may_end.wait()

    def end(self, error: GoQueueError) -> None:
        self.ended = error


class Scene:
    def __init__(self, node: Node, make: Callable[[], PlayedShard] = PlayedShard) -> None:
        self.made: list[PlayedShard] = []
        self.loaded: list[int] = []
        self.ended: list[int] = []

        def made(index: int) -> PlayedShard:
            self.made.append(make())
            return self.made[-1]

        self.shards = LedShards(
            "__topic",
            made,
            node._spawn,
            lambda index, shard: self.loaded.append(index),
            lambda index, shard: self.ended.append(index),
        )


def test_a_shard_is_found_when_it_is_read_and_not_after_its_end() -> None:
    async def life(node: Node) -> None:
        scene = Scene(node)
        with pytest.raises(NotCoordinator):
            scene.shards.find(3)
        scene.shards.note("__topic", 3, is_leading=True)
        scene.shards.note("orders", 3, is_leading=True)
        await turns(2)
        with pytest.raises(CoordinatorLoading):
            scene.shards.find(3)
        assert scene.shards.is_loading()
        assert scene.shards.all() == []
        scene.made[0].may_end.set()
        await turns(2)
        assert scene.shards.find(3) is scene.made[0]
        assert (scene.shards.all(), scene.loaded) == (scene.made, [3])
        scene.shards.note("__topic", 3, is_leading=False)
        assert isinstance(scene.made[0].ended, NotCoordinator)
        assert scene.ended == [3]
        with pytest.raises(NotCoordinator):
            scene.shards.find(3)

    in_one_life(life)


def test_a_shard_that_was_read_too_late_is_not_the_one() -> None:
    async def life(node: Node) -> None:
        scene = Scene(node)
        scene.shards.note("__topic", 3, is_leading=True)
        await turns(2)
        scene.shards.note("__topic", 3, is_leading=True)  # under another epoch
        await turns(2)
        first, second = scene.made
        first.may_end.set()
        await turns(2)
        assert first.ended is not None
        assert scene.loaded == []
        second.may_end.set()
        await turns(2)
        assert scene.shards.find(3) is second

    in_one_life(life)


def test_a_shard_that_cannot_be_read_is_tried_again_and_holds_up_no_other() -> None:
    async def life(node: Node) -> None:
        failures: list[GoQueueError | None] = [StorageError("the disk is slow"), None]
        scene = Scene(node, lambda: PlayedShard(failures.pop(0)))
        for index in (1, 2):
            scene.shards.note("__topic", index, is_leading=True)
        for shard in scene.made:
            shard.may_end.set()
        await turns(2)
        assert scene.loaded == [2]
        await asyncio.sleep(1)
        assert scene.loaded == [2, 1]
        assert [shard.load_count for shard in scene.made] == [2, 1]

    in_one_life(life)


def test_a_shard_whose_node_leads_on_after_it_was_to_hand_over_is_read_all_the_same() -> None:
    async def life(node: Node) -> None:
        scene = Scene(node, lambda: PlayedShard(NotCoordinator("it hands over to another node")))
        scene.shards.note("__topic", 3, is_leading=True)
        (shard,) = scene.made
        shard.may_end.set()
        await turns(2)
        with pytest.raises(CoordinatorLoading):
            scene.shards.find(3)
        await asyncio.sleep(1)
        assert scene.shards.find(3) is shard
        assert (scene.loaded, scene.ended, shard.load_count) == ([3], [], 2)

    in_one_life(life)


def test_a_shard_that_is_not_read_because_another_node_leads_is_not_tried_again() -> None:
    async def life(node: Node) -> None:
        scene = Scene(node, lambda: PlayedShard(NotCoordinator("another node leads")))
        scene.shards.note("__topic", 3, is_leading=True)
        (shard,) = scene.made
        shard.may_end.set()
        await turns(2)
        scene.shards.note("__topic", 3, is_leading=False)
        await asyncio.sleep(60)
        assert (scene.loaded, scene.ended, shard.load_count) == ([], [3], 1)

    in_one_life(life)


def test_who_asks_while_a_shard_is_read_waits_for_it_but_not_for_ever() -> None:
    async def life(node: Node) -> None:
        scene = Scene(node)
        loop = asyncio.get_running_loop()
        await scene.shards.wait(3)  # nobody reads it
        scene.shards.note("__topic", 3, is_leading=True)
        waiting = asyncio.ensure_future(scene.shards.wait(3))
        await turns(2)
        assert not waiting.done()
        scene.made[0].may_end.set()
        await waiting
        assert scene.shards.find(3) is scene.made[0]
        scene.shards.note("__topic", 3, is_leading=True)
        waiting = asyncio.ensure_future(scene.shards.wait(3))
        await turns(2)
        scene.shards.note("__topic", 3, is_leading=False)  # it is another node's
        await waiting
        scene.shards.note("__topic", 4, is_leading=True)
        started = loop.time()
        await scene.shards.wait(4)
        assert loop.time() - started == pytest.approx(5.0, abs=0.1)

    in_one_life(life)
