"""Transactions across restarts: what was decided is carried out, what was open ends, and zombies stay fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.support.nodes import Died, End, World, create, nothing, simulate
from tests.support.transactional import Sender, committed, is_held_up, written

from goqueue.core.group.commands import CommitInTransaction, FetchOffsets, NewOffset
from goqueue.core.txn.events import TopicPartition, TxnState
from goqueue.model.errors import GoQueueError, ProducerFenced, TransactionalProducerFenced
from goqueue.node.node import Node

ORDERS = TopicPartition("orders", 0)
ENDS = pytest.mark.parametrize("end", list(End))


async def state_of(node: Node, id: str = "app") -> TxnState:
    return (await node.transactions.describe(id)).state


async def group_offset(node: Node) -> int:
    fetched = await node.groups.fetch(FetchOffsets("workers", (("orders", (0,)),)))
    return fetched.offsets[0].offset


async def write_everywhere(node: Node, sender: Sender, number: int) -> None:
    """The same number in two partitions and as the offset of a group."""
    for partition in (0, 1):
        await sender.write(node, b"%d" % number, partition=partition)
    await node.transactions.verify_for_offsets(sender.id, *sender.who, "workers", may_add=True)
    results = await node.groups.commit_in_transaction(
        CommitInTransaction("workers", *sender.who, (NewOffset("orders", 0, number),))
    )
    assert [one.error for one in results.partitions] == [None]


@ENDS
def test_an_open_transaction_survives_a_restart_as_open_and_then_times_out(end: End) -> None:
    """Trap 25."""

    async def main(world: World) -> None:
        async def life(node: Node) -> Sender:
            await create(node)
            sender = Sender(timeout_ms=60_000)
            await sender.init(node)
            await sender.write(node, b"half")
            await asyncio.sleep(20)
            return sender

        sender = await world.live(life, end=end)

        async def after(node: Node) -> None:
            await asyncio.sleep(39)
            assert await state_of(node) is TxnState.ONGOING
            assert await is_held_up(node)
            await asyncio.sleep(2)
            assert await state_of(node) is TxnState.COMPLETE_ABORT
            assert not await is_held_up(node)
            assert (await committed(node), await written(node)) == ([], [b"half"])
            with pytest.raises(ProducerFenced):
                await sender.write_batch(node, ORDERS, b"late")

        await world.live(after, end=end)

    simulate(main)


@ENDS
def test_an_open_transaction_can_be_committed_after_a_restart(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> Sender:
            await create(node, partition_count=2)
            sender = Sender()
            await sender.init(node)
            await write_everywhere(node, sender, 1)
            return sender

        sender = await world.live(life, end=end)

        async def after(node: Node) -> None:
            await write_everywhere(node, sender, 2)
            await sender.commit(node)
            assert await committed(node) == await committed(node, partition=1) == [b"1", b"2"]
            assert await group_offset(node) == 2

        await world.live(after, end=end)

    simulate(main)


def test_a_transaction_that_timed_out_while_the_node_was_down_is_aborted_when_it_starts() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            sender = Sender(timeout_ms=5_000)
            await sender.init(node)
            await sender.write(node, b"half")

        await world.live(life, end=End.KILL)
        await asyncio.sleep(3_600)

        async def after(node: Node) -> None:
            await asyncio.sleep(0.5)
            assert await state_of(node) is TxnState.COMPLETE_ABORT
            assert not await is_held_up(node)

        await world.live(after)

    simulate(main)


@ENDS
@pytest.mark.parametrize("is_commit", [True, False])
def test_what_was_decided_before_a_crash_is_carried_out_after_it(end: End, is_commit: bool) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> Sender:
            await create(node, partition_count=2)
            sender = Sender()
            await sender.init(node)
            await write_everywhere(node, sender, 1)

            async def never(work: object, coordinator_epoch: int) -> None:
                await asyncio.Event().wait()

            node.transactions._markers.write = never  # type: ignore[method-assign]  # the crash comes first
            await sender.end(node, is_commit=is_commit)
            assert await state_of(node) in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
            assert await is_held_up(node)
            return sender

        sender = await world.live(life, end=end)

        async def after(node: Node) -> None:
            await asyncio.sleep(1)
            assert await state_of(node) is (
                TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT
            )
            seen = [b"1"] if is_commit else []
            assert await committed(node) == await committed(node, partition=1) == seen
            assert await group_offset(node) == (1 if is_commit else -1)
            await write_everywhere(node, sender, 2)
            await sender.commit(node)
            assert await committed(node) == [*seen, b"2"]

        await world.live(after, end=end)
        await world.live(nothing)

    simulate(main)


@ENDS
def test_a_zombie_is_fenced_also_after_a_restart(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> tuple[Sender, Sender]:
            await create(node)
            zombie, sender = Sender(), Sender()
            await zombie.init(node)
            await zombie.write(node, b"half")
            await sender.init(node)
            return zombie, sender

        zombie, sender = await world.live(life, end=end)

        async def after(node: Node) -> None:
            with pytest.raises(ProducerFenced):
                await zombie.write_batch(node, ORDERS, b"late")
            with pytest.raises(TransactionalProducerFenced):
                await zombie.commit(node)
            with pytest.raises(TransactionalProducerFenced):
                await zombie.init(node, as_same=True)
            await sender.write(node, b"whole")
            await sender.commit(node)
            assert await committed(node) == [b"whole"]

        await world.live(after, end=end)

    simulate(main)


@ENDS
def test_an_end_whose_answer_was_lost_has_the_same_answer_after_a_restart(end: End) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> tuple[Sender, Sender]:
            await create(node)
            sender = Sender()
            await sender.init(node)
            await sender.write(node, b"x")
            unaware = Sender(who=sender.who)
            await sender.commit(node)
            return sender, unaware

        sender, unaware = await world.live(life, end=end)

        async def after(node: Node) -> None:
            await unaware.commit(node)
            assert unaware.who == sender.who
            await unaware.write(node, b"y")
            await unaware.commit(node)
            assert await committed(node) == [b"x", b"y"]

        await world.live(after)

    simulate(main)


class Worker:
    """Commits two numbers of three and aborts the third; remembers what it heard."""

    def __init__(self, *, bumps_epoch: bool) -> None:
        self.bumps_epoch = bumps_epoch
        self.number = 0
        self.committed: list[int] = []
        self.unknown: list[int] = []

    async def run(self, node: Node) -> None:
        sender = Sender(bumps_epoch=self.bumps_epoch, timeout_ms=10_000)
        await sender.init(node)
        for _ in range(4):
            self.number += 1
            number, is_commit = self.number, self.number % 3 != 0
            if is_commit:
                self.unknown.append(number)
            await write_everywhere(node, sender, number)
            await sender.end(node, is_commit=is_commit)
            if is_commit:
                self.unknown.remove(number)
                self.committed.append(number)

    async def check(self, node: Node) -> None:
        """Once everything has ended."""
        await Sender(bumps_epoch=self.bumps_epoch).init(node)
        seen = [int(value or b"-1") for value in await committed(node)]
        assert [int(value or b"-1") for value in await committed(node, partition=1)] == seen
        assert set(self.committed) <= set(seen) <= {*self.committed, *self.unknown}
        assert seen == sorted(set(seen))
        assert await group_offset(node) == max(seen, default=-1)
        assert not await is_held_up(node)
        assert not await is_held_up(node, partition=1)


async def crashing(world: World, main: Callable[[Node], Awaitable[None]], operation: int) -> None:
    """A life in which the power fails at some operation of the disk, if it comes that far."""

    async def life(node: Node) -> None:
        world.device.crash_after(operation)
        await main(node)

    try:
        await world.live(life)
    except (Died, GoQueueError):
        pass
    finally:
        world.device.calm()


@pytest.mark.parametrize("bumps_epoch", [True, False], ids=["KIP-890", "KIP-98"])
@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_at_any_moment_leaves_all_of_a_transaction_or_nothing(
    seed: int, bumps_epoch: bool
) -> None:
    async def main(world: World) -> None:
        worker = Worker(bumps_epoch=bumps_epoch)

        async def prepare(node: Node) -> None:
            await create(node, partition_count=2)
            await worker.run(node)

        await world.live(prepare)
        for _ in range(12):
            await crashing(world, worker.run, world.device.rng.randint(1, 200))
            await world.live(worker.check)
        assert len(worker.committed) > 3  # those of the first life
        assert worker.unknown

    simulate(main, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_without_a_successor_a_crashed_transaction_ends_by_itself(seed: int) -> None:
    """Whatever moment the power failed at: no partition is left with records that the coordinator does not know of."""

    async def main(world: World) -> None:
        worker = Worker(bumps_epoch=True)

        async def prepare(node: Node) -> None:
            await create(node, partition_count=2)
            await worker.run(node)

        async def wait(node: Node) -> None:
            await asyncio.sleep(12)
            for partition in (0, 1):
                assert not await is_held_up(node, partition=partition)

        await world.live(prepare)
        for _ in range(12):
            await crashing(world, worker.run, world.device.rng.randint(1, 200))
            await world.live(wait, end=world.device.rng.choice(list(End)))

    simulate(main, seed=seed)
