"""Whoever makes a log shorter holds its fsyncs: none is under way and none begins, and nobody who asks meanwhile is forgotten."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.nodes import CONFIG, World, create, offsets, publish, read_values, simulate

from goqueue.model.acks import Acks
from goqueue.model.errors import StorageError
from goqueue.node.node import Node
from goqueue.node.partition import Partition

LONG_S = CONFIG.log.sync_timeout_ms / 2_000  # for fsyncs, and not too long for those who wait for them


async def opened(node: Node) -> Partition:
    """With one record, which is on disk."""
    await create(node)
    await publish(node, b"first")
    partition = node._table.any_partition("orders", 0)
    assert (partition.log.durable_end, partition.log.end) == (1, 1)
    return partition


def test_nothing_is_synced_while_it_is_held_and_what_is_asked_for_meanwhile_is_done_then() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await opened(node)
            before = world.device.counters.syncs
            async with partition.commit.held():
                published = asyncio.ensure_future(publish(node, b"second"))
                saved = asyncio.ensure_future(partition.commit.checkpoint())
                partition.commit.request()
                partition.commit.request_checkpoint()
                await asyncio.sleep(LONG_S)
                assert world.device.counters.syncs == before
                assert (partition.log.durable_end, partition.log.end) == (1, 2)
                assert not published.done()
                assert not saved.done()
            assert offsets(await published) == [1]
            await saved
            assert partition.log.durable_end == 2
            assert await read_values(node) == [b"first", b"second"]

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("is_checkpoint", [False, True])
def test_what_nobody_waits_for_is_synced_after_it_was_held_too(is_checkpoint: bool) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await opened(node)
            async with partition.commit.held():
                await publish(node, b"second", acks=Acks.LEADER)
                if is_checkpoint:
                    partition.commit.request_checkpoint()
                else:
                    partition.commit.request()
                assert partition.log.durable_end == 1
            await partition.commit.idle()
            assert partition.log.durable_end == 2

        await world.live(life)

    simulate(main)


def test_an_fsync_that_is_under_way_is_waited_for_and_none_follows_it() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await opened(node)
            world.device.slow("sync", 1.0)
            first = asyncio.ensure_future(publish(node, b"under way"))
            await asyncio.sleep(0.1)
            second = asyncio.ensure_future(publish(node, b"behind it"))
            await asyncio.sleep(0.1)
            assert (partition.log.durable_end, partition.log.end) == (1, 3)
            async with partition.commit.held():
                assert partition.log.durable_end == 2
                assert offsets(await first) == [1]
                await asyncio.sleep(LONG_S)
                assert partition.log.durable_end == 2
                assert not second.done()
            assert offsets(await second) == [2]

        await world.live(life)

    simulate(main)


def test_of_two_who_hold_it_the_last_lets_it_go() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await opened(node)
            async with partition.commit.held():
                async with partition.commit.held():
                    published = asyncio.ensure_future(publish(node, b"second"))
                    await asyncio.sleep(0.1)
                await asyncio.sleep(LONG_S)
                assert partition.log.durable_end == 1
            assert offsets(await published) == [1]

        await world.live(life)

    simulate(main)


def test_who_gives_up_before_it_is_held_holds_nothing() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await opened(node)

            async def hold() -> None:
                async with partition.commit.held():
                    raise AssertionError("an fsync was under way")

            world.device.slow("sync", 2.0)
            first = asyncio.ensure_future(publish(node, b"under way"))
            await asyncio.sleep(0.1)
            holding = asyncio.ensure_future(hold())
            await asyncio.sleep(0.1)
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
            assert holding.cancelled()
            second = asyncio.ensure_future(publish(node, b"behind it"))
            assert offsets(await first) + offsets(await second) == [1, 2]

        await world.live(life)

    simulate(main)


def test_a_log_that_fails_while_it_is_held_releases_those_who_wait() -> None:
    """Cutting it has failed half way, say. There will be no fsync that could tell them."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            partition = await opened(node)
            async with partition.commit.held():
                waiting = asyncio.ensure_future(partition.commit.wait(2))
                saved = asyncio.ensure_future(partition.commit.checkpoint())
                await asyncio.sleep(0.1)
                partition.log.fail("cutting it failed: the disk is gone")
            started = world.loop.time()
            for one in (waiting, saved):
                with pytest.raises(StorageError, match="cutting it failed: the disk is gone"):
                    await one
            assert world.loop.time() == started

        await world.live(life)

    simulate(main)
