"""The end of a queue group: it is deleted first and its places are forgotten then, whatever comes in between."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.nodes import End, World, create, publish, simulate

from goqueue.model.errors import CoordinatorNotAvailable, GroupNotFound, StorageError
from goqueue.node.groups.member_requests import GroupMode, Join, PollRequest, Who
from goqueue.node.node import Node
from goqueue.node.queue.requests import Delivered

ENDS = pytest.mark.parametrize("end", [End.STOP, End.KILL, End.POWER_CUT])


async def join(node: Node, member: str = "m") -> None:
    await node.members.join(Join("g", "client", ("orders",), member), GroupMode.QUEUE)


async def work(node: Node, member: str = "m", limit: int = 10) -> list[bytes | None]:
    polled = await node.members.poll(PollRequest(Who("g", member), limit, 0))
    await node.queue.ack([one.receipt for one in polled.messages if isinstance(one, Delivered)])
    return [one.record.value for one in polled.messages]


async def begin(node: Node) -> None:
    """Of two messages one is done, and nobody is there any more."""
    await create(node)
    await publish(node, b"a", b"b")
    await join(node)
    assert await work(node, limit=1) == [b"a"]
    await node.members.leave(Who("g", "m"))


@ENDS
def test_a_group_whose_places_were_not_forgotten_before_the_end_begins_anew(end: End) -> None:
    async def before(node: Node) -> None:
        await begin(node)
        node.groups._when_gone.clear()  # as if that never came
        await node.groups.delete("g")
        assert node.queue.places("g") == [("orders", 0)]

    async def after(node: Node) -> None:
        await join(node)
        assert await work(node) == [b"a", b"b"]

    async def main(world: World) -> None:
        await world.live(before, end=end)
        await world.live(after)

    simulate(main)


@ENDS
def test_a_group_that_has_begun_anew_keeps_its_place(end: End) -> None:
    async def before(node: Node) -> None:
        await begin(node)
        await node.groups.delete("g")
        await join(node)
        assert await work(node, limit=1) == [b"a"]
        await node.members.leave(Who("g", "m"))

    async def after(node: Node) -> None:
        await join(node)
        assert await work(node) == [b"b"]

    async def main(world: World) -> None:
        await world.live(before, end=end)
        await world.live(after)

    simulate(main)


def test_nobody_joins_a_deleted_group_before_its_places_are_forgotten() -> None:
    async def main(node: Node) -> None:
        await begin(node)
        error: StorageError | None = StorageError("no")

        async def fail(group_id: str) -> None:
            if error is not None:
                raise error

        node.groups._when_gone.insert(0, fail)
        with pytest.raises(StorageError):
            await node.groups.delete("g")
        with pytest.raises(StorageError):
            await join(node)
        with pytest.raises(GroupNotFound):
            await node.groups.describe_share("g")
        error = None
        with pytest.raises(GroupNotFound):
            await node.groups.delete("g")
        assert node.queue.places("g") == []
        await join(node)
        assert await work(node) == [b"a", b"b"]

    simulate(lambda world: world.live(main))


def test_who_joins_while_the_places_are_being_forgotten_waits_and_keeps_what_it_gets() -> None:
    async def main(node: Node) -> None:
        await begin(node)
        slow = asyncio.Event()

        async def wait(group_id: str) -> None:
            await slow.wait()

        node.groups._when_gone.insert(0, wait)
        deleting = asyncio.create_task(node.groups.delete("g"))
        await asyncio.sleep(1)
        joining = asyncio.create_task(join(node))
        await asyncio.sleep(1)
        assert not deleting.done()
        assert not joining.done()
        slow.set()
        await asyncio.gather(deleting, joining)
        assert await work(node, limit=1) == [b"a"]
        assert await work(node) == [b"b"]

    simulate(lambda world: world.live(main))


def test_a_group_stays_where_its_place_cannot_be_forgotten() -> None:
    async def main(node: Node) -> None:
        await begin(node)
        (ledger,) = node.queue._ledgers.all()
        ledger._lost = CoordinatorNotAvailable("its log has failed")
        with pytest.raises(CoordinatorNotAvailable):
            await node.groups.delete("g")
        ledger._lost = None
        await join(node)
        assert await work(node) == [b"b"]

    simulate(lambda world: world.live(main))


def test_a_place_that_cannot_be_forgotten_does_not_keep_the_others() -> None:
    async def main(node: Node) -> None:
        await create(node, "ill")
        await create(node, "well")
        await node.members.join(Join("g", "client", ("ill", "well"), "m"), GroupMode.QUEUE)
        await node.members.poll(PollRequest(Who("g", "m"), 10, 0))
        ill, _ = node.queue._ledgers.all()
        ill._lost = CoordinatorNotAvailable("its log has failed")
        with pytest.raises(CoordinatorNotAvailable):
            await node.queue.forget("g")
        assert node.queue.places("g") == [("ill", 0)]

    simulate(lambda world: world.live(main))


def test_a_member_that_leaves_twice_is_seen_off_twice_before_it_is_back() -> None:
    async def main(node: Node) -> None:
        await create(node)
        seen_off: list[str] = []

        async def slowly(group_id: str, member_id: str) -> None:
            await asyncio.sleep(1)
            seen_off.append(member_id)

        node.groups.when_member_left(slowly)
        for count in range(1, 3):
            await join(node)
            leaving = asyncio.create_task(node.members.leave(Who("g", "m")))
            await asyncio.sleep(0.1)
            await join(node)
            assert len(seen_off) == 2 * count - 1
            await leaving
            await node.members.leave(Who("g", "m"))
            assert len(seen_off) == 2 * count
        assert not node.groups._farewells._under_way

    simulate(lambda world: world.live(main))
