"""What happens by itself: retention, compaction, checkpoints, and what they leave for the next start to do."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.delays import later
from tests.support.leaderships import followers_of, led
from tests.support.nodes import (
    BRISK,
    CONFIG,
    SLUGGISH,
    End,
    World,
    counted,
    create,
    in_one_life,
    nothing,
    offsets,
    publish,
    read_all,
    read_values,
    simulate,
)

from goqueue.core.cluster.partitions import PartitionState
from goqueue.model.acks import Acks
from goqueue.model.errors import OffsetOutOfRange
from goqueue.node.companions import Companion
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.node import Node
from goqueue.node.requests import ReadQuery

CLEANUP_S = CONFIG.log.cleanup_interval_ms / 1_000
CHECKPOINT_S = CONFIG.log.checkpoint_interval_ms / 1_000


async def fill(node: Node, count: int, *, first: int = 0) -> None:
    for at in range(first, first + count):
        offsets(await publish(node, b"%03d" % at * 50))


def test_retention_by_time_deletes_files() -> None:
    """Trap 4, first half."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, segment_bytes="1024", retention_ms="60000")
            await fill(node, 20)
            await asyncio.sleep(45)
            await fill(node, 20, first=20)
            before = len(world.seen("logs/orders/0", ".log"))
            await asyncio.sleep(15 + CLEANUP_S + 1)
            assert len(world.seen("logs/orders/0", ".log")) <= before - 4
            assert node.topics.partition("orders", 0).earliest >= 15
            assert [record.offset for record in await read_all(node)][-20:] == list(range(20, 40))
            with pytest.raises(OffsetOutOfRange):
                await node.reader.read("orders", 0, ReadQuery(offset=0))
            assert counted(node, "storage_deleted_bytes_total") > 0

            await asyncio.sleep(60 + CLEANUP_S)
            assert await read_values(node) == []  # the active segment too
            facts = node.topics.partition("orders", 0)
            assert (facts.earliest, facts.latest, facts.size_bytes) == (40, 40, 0)
            assert offsets(await publish(node, b"next")) == [40]

        await world.live(life, end=End.POWER_CUT)

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"next"]
            assert len(world.seen("logs/orders/0", ".log")) == 1
            assert node.topics.partition("orders", 0).earliest == 40

        await world.live(after)

    simulate(main)


def test_retention_by_size_deletes_files_and_keeps_at_least_what_was_asked_for() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, segment_bytes="1024", retention_bytes="4096")
            await create(node, "unlimited", segment_bytes="1024", retention_bytes="-1", retention_ms="-1")
            for at in range(60):
                for topic in ("orders", "unlimited"):
                    await publish(node, b"%03d" % at * 50, topic=topic)
            await asyncio.sleep(CLEANUP_S + 1)
            size = node.topics.partition("orders", 0).size_bytes
            assert 4_096 <= size < 4_096 + 1_024
            assert (await read_values(node))[-1] == b"059" * 50
            assert len(world.seen("logs/orders/0", ".log")) <= 5
            assert len(await read_values(node, "unlimited")) == 60

        await world.live(life)

    simulate(main)


def test_a_shorter_retention_takes_effect_on_what_is_there() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, segment_bytes="1024")
            await fill(node, 40)
            await asyncio.sleep(2 * CLEANUP_S)
            assert len(await read_values(node)) == 40
            await node.topics.alter("orders", {"retention.ms": "1000"})
            await asyncio.sleep(CLEANUP_S)
            assert await read_values(node) == []

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("seed", range(3))
def test_a_compacted_topic_is_compacted_by_itself_while_it_is_written_and_read(seed: int) -> None:
    async def main(world: World) -> None:
        latest: dict[bytes, bytes] = {}
        count = 0

        async def life(node: Node) -> None:
            nonlocal count
            world.device.not_cached_rate = 0.5
            await create(
                node, cleanup_policy="compact", segment_bytes="2048", min_cleanable_dirty_ratio="0.1"
            )

            async def reader() -> None:
                while True:
                    offset = 0
                    while offset < node.topics.partition("orders", 0).latest:
                        page = await node.reader.read("orders", 0, ReadQuery(offset=offset, limit=1_000))
                        assert page.next_offset > offset
                        offset = page.next_offset
                    await node.reader.read("orders", 0, ReadQuery(timestamp_ms=1_700_000_000_000))
                    await asyncio.sleep(world.device.rng.uniform(0, 0.5))

            readers = [asyncio.ensure_future(reader()) for _ in range(3)]
            for step in range(400):
                key, value = b"key %d" % (step % 7), b"value %d " % step * 5
                offsets(await publish(node, value, key=key, acks=world.device.rng.choice(list(Acks))))
                latest[key] = value
                count += 1
                await asyncio.sleep(world.device.rng.uniform(0, 0.2))
            await asyncio.sleep(5)
            for task in readers:
                assert not task.done(), task.exception()
                task.cancel()
            records = await read_all(node)
            assert len(records) < 200
            assert {record.key: record.value for record in records} == latest
            assert counted(node, "storage_compacted_bytes_total") > 0

        log = LogConfig(cleanup_interval_ms=1_000, checkpoint_interval_ms=3_000)
        await world.live(life, end=End.POWER_CUT, config=NodeConfig(log=log))

        async def after(node: Node) -> None:
            assert {record.key: record.value for record in await read_all(node)} == latest
            assert node.topics.partition("orders", 0).latest == count

        await world.live(after)

    simulate(main, seed=seed)


def note_in_sync(node: Node, *in_sync: int) -> None:
    """As the controller says, of the replicas 1 and 2."""
    state = PartitionState(replicas=(1, 2), in_sync=in_sync, leader=1, leader_epoch=1, epoch=1)
    node._metadata.catalog.partitions.put("orders", 0, state)


def test_a_tombstone_stays_for_as_long_as_a_replica_is_not_in_sync() -> None:
    """It would never hear of what was deleted while it was away, and bring it back when it leads."""

    async def life(node: Node) -> None:
        await create(
            node,
            cleanup_policy="compact",
            segment_bytes="1024",
            min_cleanable_dirty_ratio="0",
            delete_retention_ms="0",
        )
        await led(node, 1)
        note_in_sync(node, 1)
        await publish(node, b"value", key=b"gone")
        await publish(node, None, key=b"gone")

        async def after_passes() -> list[bytes | None]:
            for at in range(5):
                await publish(node, b"%d" % at * 1_000, key=b"other")
                await asyncio.sleep(CLEANUP_S)
            return [record.value for record in await read_all(node) if record.key == b"gone"]

        assert await after_passes() == [None]
        note_in_sync(node, 1, 2)
        assert await after_passes() == []

    in_one_life(life)


def test_what_is_beside_a_topic_is_everywhere_where_the_topic_is() -> None:
    """The catalogue knows nothing of the logs beside a topic; they have the replicas of its partitions."""

    async def life(node: Node) -> None:
        await create(node)
        await later(node, b"some day", 3_600)
        for name in ("orders", Companion.SCHEDULE.of("orders")):
            partition = node._table.any_partition(name, 0)
            note_in_sync(node, 1)
            assert node._housekeeping._is_everywhere(partition), "where a node is alone nobody is away"
            partition.is_solo = False
            assert not node._housekeeping._is_everywhere(partition)
            note_in_sync(node, 2, 1)
            assert node._housekeeping._is_everywhere(partition)

    in_one_life(life)


@pytest.mark.parametrize("steps", range(45, 125, 5))
def test_a_reader_sees_a_whole_log_at_every_moment_of_a_compaction(steps: int) -> None:
    """Also between the moment when the files are replaced and the moment when the log hears of it."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, cleanup_policy="compact", segment_bytes="1024", min_cleanable_dirty_ratio="0")
            await publish(node, b"first", key=b"first")
            await asyncio.sleep(CLEANUP_S - world.loop.time() - 0.001)
            world.loop.executor_latency = SLUGGISH  # each step of the cleanup takes two seconds from here on
            for at in range(steps):  # so that there are always sealed segments that are not even synced
                await publish(node, b"%03d" % at * 100, key=b"key", acks=Acks.LEADER)
                await asyncio.sleep(0.1)
            world.loop.executor_latency = BRISK
            for offset in range(steps + 1):
                page = await node.reader.read("orders", 0, ReadQuery(offset=offset, limit=1_000))
                assert page.next_offset == steps + 1
                assert page.records[-1].offset == steps
            await asyncio.sleep(20)
            assert counted(node, "storage_compacted_bytes_total") > 0
            assert counted(node, "storage_damage_total") == 0
            assert (await read_values(node))[-1] == b"%03d" % (steps - 1) * 100

        log = LogConfig(checkpoint_interval_ms=600_000, sync_timeout_ms=60_000)
        await world.live(life, config=NodeConfig(log=log))

    simulate(main)


def test_a_partition_that_cannot_be_cleaned_does_not_stop_the_others() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            for topic in ("a", "b"):
                await create(node, topic, segment_bytes="1024", retention_bytes="1")
                for at in range(20):
                    await publish(node, b"%d" % at * 100, topic=topic)
            await asyncio.sleep(CLEANUP_S - world.loop.time() - 0.5)
            world.device.fail_next("sync")
            assert (await publish(node, b"x", topic="a"))[0].error is not None
            await asyncio.sleep(CLEANUP_S)
            assert node.topics.partition("a", 0).earliest == 0
            assert node.topics.partition("b", 0).earliest > 0
            assert not node.failed.is_set()

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("is_led", [True, False])
def test_damage_that_compaction_meets_is_as_if_a_reader_had_met_it(is_led: bool) -> None:
    """A leader hands over. A follower may be in sync: it gives up nothing before it is known that nobody counts on it."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(
                node, cleanup_policy="compact", segment_bytes="1024", min_cleanable_dirty_ratio="0.1"
            )
            partition = await led(node, 1)
            for at in range(20):
                await publish(node, b"%03d" % at * 50, key=b"key")
            await partition.commit.checkpoint()
            world.device.flip_bit("logs/orders/0/00000000000000000000.log", 8 * 300)
            for segment in partition.log.segments[:-1]:
                segment.release()
            damaged = followers_of(partition).damaged_partitions
            if not is_led:
                partition.follow(2, 1)
            await asyncio.sleep(2 * CLEANUP_S)
            assert partition.damaged_from == 1
            assert bool(damaged) == is_led
            assert counted(node, "storage_compacted_bytes_total") == 0

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("end", [End.KILL, End.POWER_CUT])
def test_after_a_checkpoint_a_crash_leaves_nothing_to_scan(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2, segment_bytes="1024")
            await fill(node, 20)
            await publish(node, b"other", partition=1, acks=Acks.LEADER)
            await asyncio.sleep(CHECKPOINT_S + 1)

        await world.live(life, end=end)
        assert [world.scanned_bytes("orders", at) for at in (0, 1)] == [0, 0]
        assert world.scanned_bytes("__cluster_metadata") == 0

    simulate(main)


def test_a_clean_stop_leaves_nothing_to_scan() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2, segment_bytes="1024")
            await fill(node, 20)
            await publish(node, b"other", partition=1, acks=Acks.NONE)

        await world.live(life)
        assert [world.scanned_bytes("orders", at) for at in (0, 1)] == [0, 0]
        assert world.scanned_bytes("__cluster_metadata") == 0

    simulate(main)


def test_a_clean_stop_saves_also_what_was_only_recovered() -> None:
    """A life without a write must not make the next one scan again what it has scanned."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await fill(node, 20)

        await world.live(life, end=End.KILL)
        await world.live(nothing)
        assert world.scanned_bytes("orders") == 0
        assert world.scanned_bytes("__cluster_metadata") == 0

    simulate(main)


def test_what_is_stopped_cleanly_is_there_whatever_its_acks() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            for acks in Acks:
                await publish(node, acks.encode(), acks=acks)

        async def after(node: Node) -> None:
            assert await read_values(node) == [acks.encode() for acks in Acks]

        await world.live(life, end=End.STOP)
        world.device.crash()
        await world.live(after)

    simulate(main)


def test_the_disk_and_the_loop_are_watched() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await fill(node, 20)
            await asyncio.sleep(CLEANUP_S + 1)
            assert counted(node, "storage_log_bytes") == node.topics.partition("orders", 0).size_bytes > 0
            assert counted(node, "broker_event_loop_lag_seconds_count") > 10
            assert counted(node, "storage_sync_seconds_count") > 0
            assert counted(node, "broker_topics") == 1

        await world.live(life)

    simulate(main)
