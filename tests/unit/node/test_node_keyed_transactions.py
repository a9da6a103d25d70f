"""Transactions in keyed topics: a batch that had to wait is not appended, its transaction may be over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.support.keyed_topics import scaling_of, until
from tests.support.nodes import create, in_one_life
from tests.support.transactional import Sender, committed, is_held_up, written

from goqueue.core.txn.events import TopicPartition
from goqueue.model.cluster_errors import HomeUndecided
from goqueue.model.errors import TransactionAbortable
from goqueue.node.node import Node
from goqueue.node.scaling.ports import Silence, SilenceCall
from goqueue.node.scaling.quiet import QUIET_S

GROWN = 1  # the partition that came by growth: whose ancestors are asked about a producer that is new to it


async def grown_topic(node: Node) -> Sender:
    """And who writes to it, with one epoch in all transactions: it does not tell what is late."""
    await create(node, partition_count=1, scaling="keyed")
    await node.topics.grow("orders", 2)
    await until(lambda: scaling_of(node).stage == "steady", "the topic has grown")
    await asyncio.sleep(QUIET_S)
    sender = Sender(bumps_epoch=False)
    await sender.init(node)
    return sender


@pytest.mark.parametrize("bumps_epoch", [False, True])
def test_a_batch_of_a_transaction_is_taken_when_it_comes_again(bumps_epoch: bool) -> None:
    async def life(node: Node) -> None:
        sender = await grown_topic(node)
        sender.bumps_epoch = bumps_epoch
        with pytest.raises(HomeUndecided, match="may have ended meanwhile"):
            await sender.write(node, b"a", partition=GROWN)
        assert await written(node, partition=GROWN) == []
        await sender.write(node, b"a", partition=GROWN)
        await sender.write(node, b"b", partition=GROWN)
        await sender.commit(node)
        await sender.write(node, b"c", partition=GROWN)  # nobody is asked again
        await sender.commit(node)
        await until(lambda: not node._table.any_partition("orders", GROWN).open_transactions(), "all markers")
        assert await committed(node, partition=GROWN) == [b"a", b"b", b"c"]

    in_one_life(life)


def test_a_batch_is_not_appended_to_a_transaction_that_ended_while_others_were_asked() -> None:
    """It would open the transaction again, and nobody would ever end it."""

    async def life(node: Node) -> None:
        sender = await grown_topic(node)
        parts = node.keyed.division._parts
        silence = parts.silence

        async def slow(call: SilenceCall, here: Callable[[SilenceCall], Silence]) -> Silence:
            await sender.abort(node)
            await until(lambda: node._table.any_partition("orders", GROWN).log.end == 1, "the marker")
            return await silence(call, here)

        parts.silence = slow  # type: ignore[method-assign]  # the leader of the ancestor is far away
        with pytest.raises(HomeUndecided, match="may have ended meanwhile"):
            await sender.write(node, b"late", partition=GROWN)
        with pytest.raises(TransactionAbortable):
            await sender.write_batch(node, TopicPartition("orders", GROWN), b"late")
        assert await written(node, partition=GROWN) == []
        assert not await is_held_up(node, partition=GROWN)

    in_one_life(life)


def test_a_batch_is_not_appended_to_a_transaction_that_ended_while_another_had_its_turn() -> None:
    async def life(node: Node) -> None:
        sender = await grown_topic(node)
        partition = node._table.any_partition("orders", 0)
        async with node.keyed.division._turns.of(partition, sender.who.producer_id):
            writing = asyncio.ensure_future(sender.write(node, b"late"))
            await asyncio.sleep(0.5)
            await sender.abort(node)
            await until(lambda: partition.log.end == 1, "the marker")
        with pytest.raises(HomeUndecided, match="may have ended meanwhile"):
            await writing
        assert await written(node) == []
        assert not await is_held_up(node)
        await sender.write(node, b"again")
        await sender.commit(node)
        await until(lambda: not partition.open_transactions(), "the marker")
        assert await committed(node) == [b"again"]

    in_one_life(life)
