"""Partitions added to a topic that is in use, and a crash or a failure at every step of it."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.nodes import (
    Died,
    End,
    World,
    counted,
    create,
    messages,
    offsets,
    publish,
    read_values,
    simulate,
)

from goqueue.model.acks import Acks
from goqueue.model.errors import (
    GoQueueError,
    InvalidPartitions,
    LimitExceeded,
    PartitionNotFound,
    StorageError,
    TopicNotFound,
)
from goqueue.model.limits import Limits
from goqueue.node.config import NodeConfig
from goqueue.node.node import Node
from goqueue.sim.disk import Operation

OPERATIONS = range(1, 80)  # more than there are; the test says so if not


@pytest.mark.parametrize("end", list(End))
def test_a_grown_topic_keeps_what_it_has_and_takes_more(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2, segment_bytes="2048")
            id = node.topics.get("orders").id
            await publish(node, b"old", partition=1)
            with pytest.raises(PartitionNotFound):
                await read_values(node, partition=4)
            grown = await node.topics.grow("orders", 5)
            assert grown == node.topics.get("orders")
            assert (grown.partition_count, grown.id, grown.overrides) == (5, id, {"segment.bytes": "2048"})
            assert [one.partition for one in node.topics.partitions("orders")] == [0, 1, 2, 3, 4]
            assert counted(node, "broker_partitions") == 5
            assert offsets(await publish(node, b"more", partition=1)) == [1]
            assert offsets(await publish(node, b"new", partition=4)) == [0]

        async def after(node: Node) -> None:
            assert node.topics.get("orders").partition_count == 5
            assert await read_values(node, partition=1) == [b"old", b"more"]
            assert await read_values(node, partition=4) == [b"new"]
            assert [one.damage for one in node.topics.partitions("orders")] == [[]] * 5

        await world.live(life, end=end)
        await world.live(after)

    simulate(main)


def test_settings_of_a_topic_hold_for_its_new_partitions() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, max_message_bytes="1024")
            await node.topics.grow("orders", 2)
            (refused,) = await publish(node, b"x" * 2_000, partition=1)
            assert refused.error is not None
            await node.topics.alter("orders", {"max.message.bytes": None})
            offsets(await publish(node, b"x" * 2_000, partition=1))

        await world.live(life)

    simulate(main)


def test_keys_and_keyless_messages_reach_the_new_partitions() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            await node.topics.grow("orders", 3)
            keyless = [await publish(node, b"v", partition=None) for _ in range(3)]
            assert sorted(outcome.partition or 0 for (outcome,) in keyless) == [0, 1, 2]
            keyed = [await publish(node, b"v", key=b"%d" % at, partition=None) for at in range(30)]
            assert {outcome.partition for (outcome,) in keyed} == {0, 1, 2}

        await world.live(life)

    simulate(main)


def test_publishers_and_growths_at_the_same_time_lose_nothing() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=1)

            async def publisher(number: int) -> int:
                stored = 0
                for at in range(20):
                    sent = messages(b"%d-%d" % (number, at), partition=None)
                    stored += len(offsets(await node.publisher.publish("orders", sent, acks=Acks.ALL)))
                return stored

            async def grower(count: int) -> int:
                try:
                    return (await node.topics.grow("orders", count)).partition_count
                except InvalidPartitions:
                    return 0

            stored = await asyncio.gather(*map(publisher, range(4)))
            grown = asyncio.gather(*map(grower, (2, 5, 3, 8)))
            stored += await asyncio.gather(*map(publisher, range(4, 8)))
            assert max(await grown) == 8
            values = [await read_values(node, partition=at) for at in range(8)]
            assert sum(map(len, values)) == sum(stored) == 160
            assert len({value for part in values for value in part}) == 160

        await world.live(life, end=End.KILL)

        async def after(node: Node) -> None:
            assert node.topics.get("orders").partition_count == 8
            assert sum([len(await read_values(node, partition=at)) for at in range(8)]) == 160

        await world.live(after)

    simulate(main)


def test_a_growth_that_is_not_one_is_refused_and_checked_without_doing_it() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=3)
            await create(node, "other", partition_count=2)
            for count in (3, 2, 0, -1, 6):
                with pytest.raises(InvalidPartitions):
                    node.topics.check_grow("orders", count)
                with pytest.raises(InvalidPartitions):
                    await node.topics.grow("orders", count)
            for name in ("nowhere", "__cluster_metadata"):
                with pytest.raises(TopicNotFound):
                    node.topics.check_grow(name, 4)
                with pytest.raises(TopicNotFound):
                    await node.topics.grow(name, 4)
            with pytest.raises(LimitExceeded):
                node.topics.check_grow("orders", 5)
            with pytest.raises(LimitExceeded):
                await node.topics.grow("orders", 5)
            node.topics.check_grow("orders", 4)
            assert node.topics.get("orders").partition_count == 3

        await world.live(life)
        assert world.files("logs/orders/3") == []

    limits = Limits(partitions_per_topic_max=5, partition_count_max=6)
    simulate(main, config=NodeConfig(limits=limits))


async def prove_whole(world: World) -> int:
    """The topic has its old count or the new one, all of it works, and growing on works too."""

    async def life(node: Node) -> int:
        count = node.topics.get("orders").partition_count
        assert [one.damage for one in node.topics.partitions("orders")] == [[]] * count
        assert await read_values(node, partition=1) == [b"old"]
        if count == 2:
            await node.topics.grow("orders", 4)
        await node.topics.grow("orders", 5)
        for partition in range(5):
            offsets(await publish(node, b"new", partition=partition))
        return count

    count = await world.live(life, end=End.POWER_CUT)

    async def after(node: Node) -> None:
        assert node.topics.get("orders").partition_count == 5
        found = [await read_values(node, partition=at) for at in range(5)]
        assert found == [[b"new"], [b"old", b"new"], [b"new"], [b"new"], [b"new"]]

    await world.live(after)
    assert world.files("quarantine") == []
    return count


async def begin(node: Node) -> None:
    await create(node, partition_count=2)
    await publish(node, b"old", partition=1)


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_while_a_topic_grows_leaves_the_old_count_or_the_new(seed: int) -> None:
    results = set()
    for operation in OPERATIONS:

        async def main(world: World, operation: int = operation) -> bool:
            async def growth(node: Node) -> None:
                world.device.crash_after(operation)
                await node.topics.grow("orders", 4)
                acknowledged.append(True)

            acknowledged: list[bool] = []
            is_cut = False
            await world.live(begin)
            try:
                await world.live(growth, end=End.POWER_CUT)
            except Died:
                is_cut = True
            world.device.calm()
            count = await prove_whole(world)
            assert count == 4 or not acknowledged
            results.add(count)
            return is_cut

        if not simulate(main, seed=seed):
            break
    else:
        pytest.fail("more operations than were tried")
    assert results == {2, 4}


@pytest.mark.parametrize("operation", ["append", "sync", "sync_dir", "make_dir", "rename", "open", "list"])
def test_a_disk_error_while_a_topic_grows_is_an_answer_and_harmless(operation: Operation) -> None:
    for after in range(10):

        async def main(world: World, after: int = after) -> None:
            async def life(node: Node) -> None:
                await begin(node)
                world.device.fail_next(operation, after=after)
                try:
                    grown = await node.topics.grow("orders", 4)
                    assert grown.partition_count == 4
                except GoQueueError:
                    assert node.topics.get("orders").partition_count == 2
                world.device.calm()
                assert await read_values(node, partition=1) == [b"old"]
                assert not node.failed.is_set()

            await world.live(life, end=End.KILL)
            assert await prove_whole(world) in (2, 4)

        simulate(main)


def test_partitions_that_could_not_be_opened_are_opened_by_the_next_growth() -> None:
    """The event was on disk already when opening failed."""
    late_failures = 0
    for after in range(40):

        async def main(world: World, after: int = after) -> bool:
            async def life(node: Node) -> bool:
                await begin(node)
                world.device.fail_next("list", after=after)
                try:
                    await node.topics.grow("orders", 4)
                    is_late = False
                except StorageError:
                    world.device.calm()
                    with pytest.raises(InvalidPartitions) as caught:
                        await node.topics.grow("orders", 2)
                    is_late = "has 4 partitions" in caught.value.sentence
                world.device.calm()
                await node.topics.grow("orders", 5)
                for partition in range(5):
                    offsets(await publish(node, b"new", partition=partition))
                return is_late

            return await world.live(life)

        late_failures += simulate(main)
    assert late_failures


def test_a_folder_that_holds_files_already_is_not_taken_for_a_new_partition() -> None:
    async def main(world: World) -> None:
        await world.live(begin)
        mount = world.device.mount()
        mount.make_dir("logs/orders/3")
        mount.open("logs/orders/3/00000000000000000000.log", create=True).append([b"somebody's data"])

        async def life(node: Node) -> None:
            with pytest.raises(StorageError, match="logs/orders/3 holds files"):
                await node.topics.grow("orders", 4)
            assert node.topics.get("orders").partition_count == 2
            assert (await node.topics.grow("orders", 3)).partition_count == 3

        await world.live(life)

    simulate(main)


def test_a_deleted_topic_leaves_nothing_of_its_partitions_to_a_new_one() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await begin(node)
            await node.topics.grow("orders", 4)
            await publish(node, b"old", partition=3)
            await node.topics.delete("orders")
            await create(node, partition_count=2)
            await node.topics.grow("orders", 4)
            assert await read_values(node, partition=3) == []
            assert counted(node, "broker_partitions") == 4

        await world.live(life)

    simulate(main)
