"""Topics: created, altered and deleted, also at the same time, and what of it a restart finds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from random import Random

import pytest
from tests.support.nodes import (
    BRISK,
    CONFIG,
    SLUGGISH,
    End,
    World,
    codes,
    counted,
    create,
    messages,
    nothing,
    offsets,
    publish,
    read_values,
    simulate,
)

from goqueue.model.acks import Acks
from goqueue.model.codes import Code
from goqueue.model.errors import (
    GoQueueError,
    InvalidName,
    InvalidPartitions,
    InvalidSetting,
    LimitExceeded,
    StorageError,
    TimedOut,
    TopicExists,
    TopicNotFound,
)
from goqueue.model.limits import Limits
from goqueue.node.config import LogConfig, NodeConfig
from goqueue.node.node import Node
from goqueue.node.requests import ReadQuery


def names(node: Node) -> list[str]:
    return [facts.name for facts in node.topics.list()]


def uses_of(node: Node, name: str) -> list[Awaitable[object]]:
    return [
        publish(node, b"a", topic=name),
        node.reader.read(name, 0, ReadQuery()),
        node.topics.delete(name),
        node.topics.alter(name, {"retention.ms": "1000"}),
    ]


def test_a_topic_is_described_as_it_was_created() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            before_ms = world.clock.now_ms()
            created = await node.topics.create(
                "orders", partition_count=3, overrides={"retention.ms": "5000", "partitioner": "crc32"}
            )
            assert created == node.topics.get("orders")
            assert created.partition_count == 3
            assert before_ms <= created.created_ms <= world.clock.now_ms()
            assert created.overrides == {"retention.ms": "5000", "partitioner": "crc32"}
            assert created.settings["retention.ms"] == "5000"
            assert created.settings["segment.bytes"] == str(64 * 1024 * 1024)
            facts = node.topics.partitions("orders")
            assert [one.partition for one in facts] == [0, 1, 2]
            assert {(one.earliest, one.latest, one.leader) for one in facts} == {(0, 0, 1)}

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("end", list(End))
def test_settings_survive_a_restart(end: End) -> None:
    """Trap 3."""

    async def main(world: World) -> None:
        async def before(node: Node) -> None:
            await create(node, partition_count=2, retention_ms="5000", segment_bytes="2048")
            await node.topics.alter("orders", {"retention.ms": None, "compression.type": "zstd"})

        async def after(node: Node) -> None:
            facts = node.topics.get("orders")
            assert facts.partition_count == 2
            assert facts.overrides == {"segment.bytes": "2048", "compression.type": "zstd"}
            assert facts.settings["retention.ms"] == str(168 * 3_600_000)

        await world.live(before, end=end)
        await world.live(after)

    simulate(main)


def test_an_altered_setting_is_in_force_at_once() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            for at in range(4):
                await publish(node, b"%d" % at * 600)
            await node.topics.alter("orders", {"segment.bytes": "1024"})
            for at in range(4):
                await publish(node, b"%d" % at * 600)
            await node.topics.alter("orders", {"max.message.bytes": "1024"})
            (refused,) = await publish(node, b"x" * 1_100)
            assert refused.error is not None
            await node.topics.alter("orders", {"max.message.bytes": None})
            offsets(await publish(node, b"x" * 1_100))

        await world.live(life)
        logs = [path for path in world.files("logs/orders/0") if path.endswith(".log")]
        assert len(logs) == 6

    simulate(main)


def test_a_wrong_setting_changes_nothing() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, retention_ms="5000")
            for changes in ({"retention.ms": "7", "segment.bytes": "1"}, {"no.such": "1"}, {"no.such": None}):
                with pytest.raises(InvalidSetting):
                    await node.topics.alter("orders", changes)
            assert node.topics.get("orders").overrides == {"retention.ms": "5000"}
            with pytest.raises(InvalidSetting):
                await create(node, "other", retention_ms="soon")
            assert names(node) == ["orders"]

        await world.live(life)
        assert world.files("logs/other") == []

    simulate(main)


def test_a_deleted_topic_is_gone_with_its_files() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2)
            await create(node, "kept")
            await publish(node, b"a")
            await publish(node, b"a", topic="kept")
            await node.topics.delete("orders")
            assert names(node) == ["kept"]
            for call in uses_of(node, "orders"):
                with pytest.raises(TopicNotFound):
                    await call

        await world.live(life)
        assert {path.split("/")[1] for path in world.files("logs")} == {"__cluster_metadata", "kept"}
        assert world.files("trash") == []

    simulate(main)


def test_a_topic_created_again_begins_empty() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=3, retention_ms="5000")
            await publish(node, b"old")
            await node.topics.delete("orders")
            await create(node)
            assert node.topics.get("orders").overrides == {}
            assert len(node.topics.partitions("orders")) == 1
            assert await read_values(node) == []
            assert offsets(await publish(node, b"new")) == [0]

        await world.live(life, end=End.POWER_CUT)

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"new"]

        await world.live(after)

    simulate(main)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\x00b", "a\nb", "ä", "x" * 250, "__mine"])
def test_a_bad_name_never_reaches_the_disk(name: str) -> None:
    """Trap 32."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            before = world.device.counters.written_bytes
            with pytest.raises(InvalidName):
                await create(node, name)
            for call in uses_of(node, name):
                with pytest.raises(TopicNotFound if name == "__mine" else InvalidName):
                    await call
            assert world.device.counters.written_bytes == before

        await world.live(life)

    simulate(main)


def test_the_internal_topic_can_be_neither_read_nor_written_nor_deleted() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            for call in uses_of(node, "__cluster_metadata"):
                with pytest.raises(TopicNotFound):
                    await call
            assert names(node) == []

        await world.live(life)

    simulate(main)


def test_limits_on_topics_and_partitions_hold() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            for count in (0, -1, 6):
                with pytest.raises(InvalidPartitions):
                    await create(node, partition_count=count)
            await create(node, "a", partition_count=5)
            with pytest.raises(LimitExceeded):
                await create(node, "b", partition_count=4)
            await create(node, "b")
            with pytest.raises(LimitExceeded):
                await create(node, "c")
            await node.topics.delete("a")
            await create(node, "c", partition_count=5)
            assert names(node) == ["b", "c"]

        limits = Limits(topic_count_max=2, partition_count_max=8, partitions_per_topic_max=5)
        await world.live(life, config=NodeConfig(limits=limits))

    simulate(main)


def test_limits_hold_for_topics_created_at_the_same_time() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            done = await asyncio.gather(
                *(create(node, f"topic-{at}") for at in range(6)), return_exceptions=True
            )
            assert len(names(node)) == 3
            assert sum(isinstance(one, LimitExceeded) for one in done) == 3

        await world.live(life, config=NodeConfig(limits=Limits(topic_count_max=3)))
        assert len(await world.live(_names)) == 3

    simulate(main)


async def _names(node: Node) -> list[str]:
    return names(node)


@pytest.mark.parametrize("seed", range(10))
def test_of_creations_of_one_name_at_the_same_time_exactly_one_wins(seed: int) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            done = await asyncio.gather(
                *(create(node, partition_count=at + 1) for at in range(5)), return_exceptions=True
            )
            assert [type(one) for one in done if one is not None] == [TopicExists] * 4
            assert node.topics.get("orders").partition_count == done.index(None) + 1
            offsets(await publish(node, b"a"))

        await world.live(life)

    simulate(main, seed=seed)


async def later(rng: Random, call: Awaitable[object]) -> object:
    await asyncio.sleep(rng.uniform(0, 0.02))
    return await call


@pytest.mark.parametrize("seed", range(30))
def test_what_happens_to_one_name_at_the_same_time_leaves_a_whole_topic_or_none(seed: int) -> None:
    """Whatever the order, what is acknowledged on the topic that is left survives."""

    async def main(world: World) -> None:
        async def life(node: Node) -> bool:
            await create(node)
            rng = world.device.rng
            calls: list[Awaitable[object]] = [
                later(rng, call)
                for call in (
                    *(node.topics.delete("orders") for _ in range(3)),
                    *(create(node, partition_count=count) for count in (2, 3, 4)),
                    *(node.topics.alter("orders", {"retention.ms": f"{at}000"}) for at in (1, 2, 3)),
                    *(publish(node, b"meanwhile") for _ in range(3)),
                )
            ]
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                assert not isinstance(outcome, Exception) or isinstance(outcome, GoQueueError), repr(outcome)
            is_there = "orders" in names(node)
            if is_there:
                await publish(node, b"last")
            else:
                await create(node)
                await publish(node, b"last")
            facts = node.topics.get("orders")
            settings.append((facts.partition_count, facts.overrides))
            return is_there

        settings: list[tuple[int, dict[str, str]]] = []
        await world.live(life, end=End.POWER_CUT)

        async def after(node: Node) -> None:
            facts = node.topics.get("orders")
            assert (facts.partition_count, facts.overrides) == settings[0]
            assert (await read_values(node))[-1] == b"last"

        await world.live(after)

    simulate(main, seed=seed)


def test_a_deletion_that_timed_out_is_done_in_the_end() -> None:
    """The event may be in the log already, so the live state must follow it: otherwise what is published meanwhile is
    lost at the next start, and a second deletion makes a log that cannot be replayed."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            world.device.slow("sync", 60)
            with pytest.raises(TimedOut):
                await node.topics.delete("orders")
            world.device.slow("sync", 0)
            await asyncio.sleep(200)
            assert names(node) == []
            with pytest.raises(TopicNotFound):
                await node.topics.delete("orders")
            await create(node)
            await publish(node, b"kept")

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"kept"]

        await world.live(life, end=End.KILL)
        await world.live(after)

    simulate(main)


def test_a_topic_whose_creator_has_gone_is_there_or_not_but_never_half() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            for steps in range(40):
                task = asyncio.ensure_future(create(node, f"topic-{steps}"))
                await asyncio.sleep(steps * 0.0003)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(1)
            for steps in range(40):
                name = f"topic-{steps}"
                if name not in names(node):
                    await create(node, name)
                offsets(await publish(node, b"a", topic=name))
                await node.topics.delete(name)

        await world.live(life)
        await world.live(nothing)

    simulate(main)


def test_a_topic_that_could_not_be_opened_can_be_deleted_and_created_again() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            failures = 0
            for lists in range(10):  # let each listing of a folder in a creation fail once
                world.device.fail_next("list", after=lists)
                try:
                    await create(node)
                except StorageError:
                    failures += 1
                world.device.calm()
                if "orders" not in names(node):
                    with contextlib.suppress(TopicNotFound):  # only if it is in the catalogue
                        await node.topics.delete("orders")
                    await create(node)
                offsets(await publish(node, b"a"))
                await node.topics.delete("orders")
            assert failures > 1

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5])
@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"},
        {"cleanup_policy": "delete", "retention_bytes": "1"},
    ],
)
def test_a_topic_deleted_while_it_is_cleaned_up_does_not_return(
    settings: dict[str, str], seconds: float
) -> None:
    """A thread that went on in the folder of the next topic of that name would put the data of the last one there."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, "orders", 1, segment_bytes="1024", **settings)
            for at in range(30):
                await publish(node, b"old %d" % at * 10, key=b"key")
            await asyncio.sleep(CONFIG.log.cleanup_interval_ms / 1_000 - world.loop.time() - 0.001)
            world.loop.executor_latency = SLUGGISH  # each step of the cleanup takes two seconds from here on
            await asyncio.sleep(seconds)
            world.loop.executor_latency = BRISK
            await node.topics.delete("orders")
            await create(node, segment_bytes="1024")
            for at in range(30):
                await publish(node, b"new %d" % at * 10)
            await asyncio.sleep(20)
            assert await read_values(node) == [b"new %d" % at * 10 for at in range(30)]
            assert node.health().checks["partitions"] == "ok"

        log = LogConfig(checkpoint_interval_ms=600_000)
        await world.live(life, end=End.KILL, config=NodeConfig(log=log))

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"new %d" % at * 10 for at in range(30)]
            assert node.topics.partition("orders", 0).damage == []

        await world.live(after)

    simulate(main)


def test_a_publish_does_not_begin_to_write_to_a_partition_that_is_gone() -> None:
    """Its checkpoint would land in the folder of the next topic of that name."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2)
            for partition in (0, 1):
                await publish(node, b"old", partition=partition)

        await world.live(life)

        async def after(node: Node) -> None:
            request = [*messages(b"a", partition=1), *messages(b"b", partition=0)]
            world.loop.executor_latency = SLUGGISH  # to become leader of partition 1 takes four seconds
            publishing = asyncio.ensure_future(node.publisher.publish("orders", request, acks=Acks.ALL))
            await asyncio.sleep(3.5)
            world.loop.executor_latency = BRISK
            await node.topics.delete("orders")
            assert codes(await publishing) == [Code.TOPIC_NOT_FOUND] * 2
            assert counted(node, "storage_sync_failures_total") == 0

        await world.live(after)

    simulate(main)


def test_a_partition_folder_that_is_gone_is_reported_and_not_taken_for_an_empty_one() -> None:
    async def main(world: World) -> None:
        async def fill(node: Node) -> None:
            await create(node, partition_count=2)
            await publish(node, b"a")

        async def look(node: Node) -> None:
            lost, kept = node.topics.partitions("orders")
            assert "was missing" in lost.damage[0]
            assert kept.damage == []
            assert offsets(await publish(node, b"b")) == [0]

        await world.live(fill)
        world.device.mount().remove_tree("logs/orders/0")
        await world.live(look)

    simulate(main)
