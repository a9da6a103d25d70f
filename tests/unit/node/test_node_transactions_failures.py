"""Transactions on a disk that fails: nothing is half done, and what was decided is carried out when it can be."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.support.nodes import World, counted, create, in_one_life, simulate
from tests.support.transactional import Sender, committed, is_held_up

from goqueue.core.txn.events import TxnState
from goqueue.model.errors import CoordinatorNotAvailable
from goqueue.node.node import Node


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_marker_that_cannot_be_written_is_written_later(error: int) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            sender = Sender()
            await sender.init(node)
            await sender.write(node, b"x")
            for after in (1, 1, 1):  # the first append is the verdict, the next the marker
                world.device.fail_next("append", error=error, after=after)
            await sender.commit(node)
            await asyncio.sleep(10)
            assert await committed(node) == [b"x"]
            assert counted(node, "broker_transaction_retries_total") >= 1
            assert (await node.transactions.describe("app")).state is TxnState.COMPLETE_COMMIT

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_decision_that_cannot_be_written_was_not_made(error: int) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            sender = Sender()
            await sender.init(node)
            await sender.write(node, b"x")
            world.device.fail_next("append", error=error)
            with pytest.raises(CoordinatorNotAvailable):
                await sender.commit(node)
            assert (await node.transactions.describe("app")).state is TxnState.ONGOING
            await sender.abort(node)
            assert await committed(node) == []

        await world.live(life)

    simulate(main)


def test_a_verdict_that_may_be_lost_is_told_to_nobody() -> None:
    """The log of the coordinator stops after a failed sync; what became of the verdict is known after a restart."""

    async def main(world: World) -> None:
        async def life(node: Node) -> Sender:
            await create(node)
            sender = Sender()
            await sender.init(node)
            await sender.write(node, b"x")
            world.device.fail_next("sync")
            for _ in range(2):
                with pytest.raises(CoordinatorNotAvailable):
                    await sender.commit(node)
            await asyncio.sleep(70)
            assert await is_held_up(node)
            return sender

        sender = await world.live(life)

        async def after(node: Node) -> None:
            await asyncio.sleep(70)
            assert not await is_held_up(node)
            assert await committed(node) in ([b"x"], [])
            await sender.init(node)

        await world.live(after)

    simulate(main)


def test_a_timeout_that_cannot_be_written_is_written_later() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            sender = Sender(timeout_ms=1_000)
            await sender.init(node)
            await sender.write(node, b"x")
            await asyncio.sleep(0.5)
            world.device.fail_next("append", error=errno.ENOSPC)
            await asyncio.sleep(1)
            assert await is_held_up(node)
            await asyncio.sleep(1.5)
            assert not await is_held_up(node)

        await world.live(life)

    simulate(main)


def test_a_full_disk_lets_transactions_end() -> None:
    async def life(node: Node) -> None:
        await create(node)
        sender = Sender()
        await sender.init(node)
        await sender.write(node, b"x")
        node._disk_watch._level = "full"
        await sender.commit(node)
        assert await committed(node) == [b"x"]

    in_one_life(life)
