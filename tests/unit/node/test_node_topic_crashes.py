"""A power cut or a failure at every single disk operation of creating and deleting a topic, and folders that nobody
knows: a topic is there or not, never half, and never with the data of its predecessor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.nodes import (
    Died,
    End,
    World,
    create,
    nothing,
    offsets,
    publish,
    read_values,
    simulate,
)

from goqueue.model.errors import GoQueueError
from goqueue.node.node import Node
from goqueue.sim.disk import Operation

OPERATIONS = range(1, 80)  # more than there are; the test says so if not


async def crashed(world: World, life: Callable[[Node], Awaitable[None]], operation: int) -> bool:
    """Run a life whose power is cut at an operation after its start; False if it has fewer."""

    async def main(node: Node) -> None:
        world.device.crash_after(operation)
        await life(node)

    try:
        await world.live(main, end=End.KILL)
    except Died:
        return True
    world.device.calm()
    return False


async def prove_whole(world: World, expected: list[bytes | None] | None) -> bool:
    """Whether the topic is there; with exactly these values if so, and usable or creatable in any case."""

    async def life(node: Node) -> bool:
        is_there = bool(node.topics.list())
        if is_there:
            assert len(node.topics.partitions("orders")) == 2
            assert node.topics.get("orders").overrides == {"segment.bytes": "1024"}
            assert await read_values(node) == (expected or [])
        else:
            await create(node, partition_count=2)
            assert [await read_values(node, partition=at) for at in (0, 1)] == [[], []]
        for partition in (0, 1):
            offsets(await publish(node, b"new", partition=partition))
        return is_there

    is_there = await world.live(life, end=End.POWER_CUT)

    async def after(node: Node) -> None:
        assert (await read_values(node))[-1] == b"new"
        assert await read_values(node, partition=1) == [b"new"]

    await world.live(after)
    assert world.files("quarantine") == []
    return is_there


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_while_a_topic_is_created(seed: int) -> None:
    results = set()
    for operation in OPERATIONS:

        async def main(world: World, operation: int = operation) -> bool:
            async def life(node: Node) -> None:
                await create(node, partition_count=2, segment_bytes="1024")

            is_cut = await crashed(world, life, operation)
            results.add(await prove_whole(world, None))
            return is_cut

        if not simulate(main, seed=seed):
            break
    else:
        pytest.fail("more operations than were tried")
    assert results == {True, False}


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_while_a_topic_is_deleted(seed: int) -> None:
    values: list[bytes | None] = [b"%d" % at * 200 for at in range(10)]
    results = set()
    for operation in OPERATIONS:

        async def main(world: World, operation: int = operation) -> bool:
            async def life(node: Node) -> None:
                await create(node, partition_count=2, segment_bytes="1024")
                for value in values:
                    await publish(node, value)

            async def deletion(node: Node) -> None:
                await node.topics.delete("orders")

            await world.live(life)
            is_cut = await crashed(world, deletion, operation)
            results.add(await prove_whole(world, values))
            return is_cut

        if not simulate(main, seed=seed):
            break
    else:
        pytest.fail("more operations than were tried")
    assert results == {True, False}


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_while_a_topic_is_deleted_and_created_again(seed: int) -> None:
    for operation in OPERATIONS:

        async def main(world: World, operation: int = operation) -> bool:
            async def life(node: Node) -> None:
                await create(node)
                for at in range(10):
                    await publish(node, b"old %d" % at * 100)

            async def renewal(node: Node) -> None:
                await node.topics.delete("orders")
                await create(node)
                offsets(await publish(node, b"new"))
                acked.append(b"new")

            acked: list[bytes] = []
            await world.live(life)
            is_cut = await crashed(world, renewal, operation)

            async def after(node: Node) -> None:
                names = [facts.name for facts in node.topics.list()]
                values = await read_values(node) if names else []
                old = [b"old %d" % at * 100 for at in range(10)]
                assert values in (old, [], [b"new"])
                if acked:
                    assert values == acked

            await world.live(after)
            return is_cut

        if not simulate(main, seed=seed):
            break
    else:
        pytest.fail("more operations than were tried")


@pytest.mark.parametrize(
    "operation", ["append", "sync", "sync_dir", "make_dir", "rename", "open", "remove_tree"]
)
def test_a_disk_error_while_a_topic_is_created_or_deleted_leaves_it_whole_or_gone(
    operation: Operation,
) -> None:
    for after in range(12):

        async def main(world: World, after: int = after) -> None:
            async def life(node: Node) -> None:
                await create(node, "other")
                await publish(node, b"kept", topic="other")
                world.device.fail_next(operation, after=after)
                for is_creation in (True, False, True):
                    try:
                        if is_creation:
                            await create(node, partition_count=2, segment_bytes="1024")
                        else:
                            await node.topics.delete("orders")
                    except GoQueueError as error:
                        refused.append(error)
                world.device.calm()
                assert await read_values(node, "other") == [b"kept"]
                assert not node.failed.is_set()

            refused: list[GoQueueError] = []
            await world.live(life, end=End.KILL)

            async def next_life(node: Node) -> None:
                assert await read_values(node, "other") == [b"kept"]
                await node.topics.delete("other")

            await world.live(next_life)
            await prove_whole(world, None)

        simulate(main)


@pytest.mark.parametrize("operation", ["make_dir", "rename", "remove_tree", "list"])
@pytest.mark.parametrize("end", [None, End.STOP, End.POWER_CUT])
def test_files_that_a_deletion_could_not_remove_do_not_come_back(
    operation: Operation, end: End | None
) -> None:
    """Neither in the same life nor in the next."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            for at in range(10):
                await publish(node, b"old %d" % at)
            world.device.fail_next(operation)
            await node.topics.delete("orders")
            world.device.calm()
            if end is None:
                await renew(node)

        async def renew(node: Node) -> None:
            assert node.topics.list() == []
            await create(node)
            assert await read_values(node) == []
            assert offsets(await publish(node, b"new")) == [0]

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"new"]

        await world.live(life, end=end or End.POWER_CUT)
        if end is not None:
            await world.live(renew, end=End.POWER_CUT)
        await world.live(after)

    simulate(main)


def test_a_folder_that_nobody_knows_is_set_aside_with_its_data() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, "known")
            await publish(node, b"a", topic="known")

        await world.live(life)

        def put(path: str) -> None:
            mount = world.device.mount()
            mount.make_dir(path.rpartition("/")[0])
            file = mount.open(path, create=True)
            file.append([b"somebody's data"])
            file.sync()
            parent = path
            while parent:
                parent = parent.rpartition("/")[0]
                mount.sync_dir(parent)

        name = "00000000000000000000.log"
        for count in (1, 2, 3):
            put(f"logs/stray/0/{name}")

            async def after(node: Node) -> None:
                assert [facts.name for facts in node.topics.list()] == ["known"]
                assert await read_values(node, "known") == [b"a"]

            await world.live(after)
            assert world.files("logs/stray") == []
            kept = world.files("quarantine/logs")
            assert len(kept) == count
            assert all(path.endswith(f"/0/{name}") for path in kept)
            assert {world.device.snapshot()[path] for path in kept} == {b"somebody's data"}

    simulate(main)


def test_a_file_that_does_not_belong_there_does_not_stop_a_start() -> None:
    async def main(world: World) -> None:
        await world.live(nothing)
        mount = world.device.mount()
        mount.open("logs/.DS_Store", create=True).append([b"x"])
        mount.make_dir("logs/empty/0")
        await world.live(nothing)

    simulate(main)


def test_a_damaged_metadata_log_stops_the_start_with_a_reason() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            for name in ("a", "b", "c"):
                await create(node, name)

        await world.live(life)
        path = "logs/__cluster_metadata/0/00000000000000000000.log"
        world.device.flip_bit(path, 8 * (len(world.device.snapshot()[path]) // 2))
        with pytest.raises(GoQueueError) as caught:
            await world.live(nothing)
        assert path in str(caught.value)

    simulate(main)
