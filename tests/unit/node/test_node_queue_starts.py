"""Where a group begins that has not read a partition yet, or is sent elsewhere, when the power fails soon after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.support.kafka_calls import Kafka
from tests.support.nodes import End, World, create, publish, read_values, simulate
from tests.support.share_calls import ShareMember

from goqueue.model.acks import Acks
from goqueue.node.node import Node
from goqueue.node.queue.polling import Poll

PLACE = ("orders", 0)


async def by_poll(node: Node) -> None:
    assert await node.queue.poll(Poll("g", "m", [PLACE], 10, from_latest=True)) == []


async def by_share_fetch(node: Node) -> None:
    one = ShareMember(Kafka(node), node)
    await one.join()
    assert await one.open() == []


async def by_seek(node: Node) -> None:
    await node.queue.seek("g", *PLACE, 1)


@pytest.mark.parametrize("begin", [by_poll, by_share_fetch, by_seek])
@pytest.mark.parametrize("seed", range(5))
def test_a_group_that_begins_at_the_end_is_not_behind_it_after_a_power_cut(
    begin: Callable[[Node], Awaitable[None]], seed: int
) -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            await publish(node, b"before", acks=Acks.LEADER)  # on disk when it pleases the disk
            await begin(node)

        async def second(node: Node) -> None:
            await publish(node, b"after")
            assert await read_values(node) == [b"before", b"after"]
            (found,) = await node.queue.poll(Poll("g", "m", [PLACE], 10, from_latest=True))
            assert found.record.value == b"after"

        await world.live(first, end=End.POWER_CUT)
        await world.live(second)

    simulate(main, seed=seed)


def test_what_comes_in_the_place_of_a_lost_end_is_given_as_new() -> None:
    """A log whose last batch is damaged is cut there like a torn one. The group had read it."""
    path = "logs/orders/0/00000000000000000000.log"

    async def main(world: World) -> None:
        async def read(node: Node) -> int:
            await create(node)
            await publish(node, b"kept")
            size = len(world.device.snapshot()[path])
            await publish(node, b"lost")
            got = await node.queue.poll(Poll("g", "m", [PLACE], 10))
            await node.queue.ack([one.receipt for one in got])
            return size

        async def nothing(node: Node) -> None:
            assert node.queue.committed("g", *PLACE) == 1

        async def go_on(node: Node) -> None:
            found = await node.queue.poll(Poll("g", "other", [PLACE], 10))
            assert [(one.record.value, one.deliveries) for one in found] == [(b"new", 1)]

        size = await world.live(read, end=End.KILL)
        file = world.device.mount().open(path)
        file.truncate(size)
        file.sync()
        await world.live(nothing, end=End.POWER_CUT)
        await world.live(lambda node: publish(node, b"new"), end=End.KILL)
        await world.live(go_on)

    simulate(main)
