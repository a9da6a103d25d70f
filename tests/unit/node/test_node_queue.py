"""The queue of a whole node: leases, acks, retries, restarts."""

from __future__ import annotations

import asyncio

from tests.support.nodes import End, World, create, publish, simulate

from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError
from goqueue.node.node import Node
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.requests import Delivered, Finished, Returned


async def poll(
    node: Node, member: str = "m", *, group: str = "g", limit: int = 100, wait_ms: int = 0
) -> list[Delivered]:
    places = [("orders", index) for index in range(len(node.topics.partitions("orders")))]
    return await node.queue.poll(Poll(group, member, places, limit, wait_ms))


async def ack(node: Node, *delivered: Delivered) -> list[Finished | GoQueueError]:
    return await node.queue.ack([one.receipt for one in delivered])


def values(delivered: list[Delivered]) -> list[bytes | None]:
    return [one.record.value for one in delivered]


def test_records_are_given_once_and_an_ack_ends_it() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a", b"b", b"c")
        got = await poll(node)
        assert values(got) == [b"a", b"b", b"c"]
        assert await poll(node, "other") == []
        (done,) = await ack(node, got[1])
        assert isinstance(done, Finished)
        assert (done.committed_offset, done.in_flight_count) == (0, 2)
        _, last = await ack(node, got[0], got[2])
        assert isinstance(last, Finished)
        assert last.committed_offset == 3
        (again,) = await ack(node, got[0])
        assert isinstance(again, GoQueueError)
        assert again.code is Code.MESSAGE_SETTLED

    simulate(lambda world: world.live(main))


def test_a_lease_that_is_not_finished_comes_back_with_a_higher_count() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a")
        (first,) = await poll(node)
        (second,) = await poll(node, "other", wait_ms=60_000)
        assert (second.deliveries, second.record.value) == (2, b"a")
        (late,) = await ack(node, first)
        assert isinstance(late, GoQueueError)
        assert late.code is Code.LEASE_SUPERSEDED
        (done,) = await ack(node, second)
        assert isinstance(done, Finished)

    simulate(lambda world: world.live(main))


def test_a_nack_gives_the_record_again_after_the_backoff() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, b"a")
        loop = asyncio.get_running_loop()
        (got,) = await poll(node)
        (back,) = await node.queue.nack([got.receipt], reason="not now")
        assert isinstance(back, Returned)
        assert not back.is_dead
        started = loop.time()
        (again,) = await poll(node, wait_ms=30_000)
        assert again.deliveries == 2
        assert 0.9 <= loop.time() - started < 1.2

    simulate(lambda world: world.live(main))


def test_a_waiting_poll_wakes_when_a_record_comes() -> None:
    async def main(node: Node) -> None:
        await create(node)
        waiting = asyncio.create_task(poll(node, wait_ms=30_000))
        await asyncio.sleep(3)
        await publish(node, b"a")
        assert values(await waiting) == [b"a"]

    simulate(lambda world: world.live(main))


def test_acks_and_leases_outlive_every_kind_of_end() -> None:
    async def main(world: World) -> None:
        kept: list[Delivered] = []

        async def first(node: Node) -> None:
            await create(node)
            await publish(node, b"a", b"b", b"c")
            kept.extend(await poll(node))
            await ack(node, kept[0])

        async def later(node: Node) -> None:
            assert await poll(node) == []
            (done,) = await ack(node, kept[1])
            assert isinstance(done, Finished)
            assert done.committed_offset == 2
            (again,) = await poll(node, wait_ms=60_000)
            assert (again.record.value, again.deliveries) == (b"c", 2)

        await world.live(first, end=End.POWER_CUT)
        await world.live(later)

    simulate(main)


def test_two_groups_get_every_record_each() -> None:
    async def main(node: Node) -> None:
        await create(node, partition_count=2)
        await publish(node, b"a", partition=0)
        await publish(node, b"b", partition=1)
        for group in ("one", "two"):
            assert sorted(one.record.value or b"" for one in await poll(node, group=group)) == [b"a", b"b"]

    simulate(lambda world: world.live(main))


def test_a_member_gets_no_more_than_it_may_hold() -> None:
    async def main(node: Node) -> None:
        await create(node)
        await publish(node, *[b"x"] * 1_500)
        got = await poll(node, limit=1_000)
        assert len(got) == 1_000
        assert await poll(node, limit=1_000) == []
        assert len(await poll(node, "other", limit=1_000)) == 500
        waiting = asyncio.create_task(poll(node, wait_ms=10_000))
        await asyncio.sleep(1)
        await publish(node, b"new")
        await asyncio.sleep(1)
        assert not waiting.done()
        await ack(node, got[0])
        assert values(await waiting) == [b"new"]

    simulate(lambda world: world.live(main))
