"""Parts of batches that no producer has numbered: nothing tells one that comes again, so the broker sends none a second time by
itself once it may be stored."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.keyed_topics import scaling_of, until
from tests.support.nodes import create, in_one_life, read_all

from goqueue.log.batch import build_batch
from goqueue.model.acks import Acks
from goqueue.model.cluster_errors import HomeUndecided, NotLeader, PeerUnreachable, ReplicationUnknown
from goqueue.model.errors import GoQueueError
from goqueue.model.partitioner import Partitioner, partition_for_key
from goqueue.model.record import NewRecord, Producer
from goqueue.node.node import Node
from goqueue.node.scaling.ports import Part
from goqueue.node.scaling.quiet import QUIET_S

COUNT = 4


def key_of(index: int) -> bytes:
    keys = (b"k%d" % at for at in range(1_000))
    return next(key for key in keys if partition_for_key(Partitioner.MURMUR3, key, COUNT) == index)


async def grown_topic(node: Node) -> None:
    """From one partition to four."""
    await create(node, partition_count=1, scaling="keyed")
    await node.topics.grow("orders", COUNT)
    await until(lambda: scaling_of(node).stage == "steady", "the topic has grown")
    await asyncio.sleep(QUIET_S)


async def send(node: Node, *homes: int, producer: Producer | None = None) -> None:
    """To the first partition, one record for each home."""
    records = [NewRecord(key_of(home), b"") for home in homes]
    batch = build_batch(records, node.clock.now_ms(), producer=producer)
    placed = await node.publisher.append_batch("orders", 0, batch, acks=Acks.ALL)
    await node.publisher.until_stored(placed)


async def counts(node: Node) -> list[int]:
    return [len(await read_all(node, "orders", index)) for index in range(COUNT)]


def fail(node: Node, home: int, error: GoQueueError, *, is_stored: bool, times: int = 1) -> None:
    """What the leader of a home, or the link to it, says of the next parts."""
    parts, failures = node.keyed.division._parts, [error] * times
    send = parts._send

    async def broken(part: Part) -> int:
        if part.home != home or not failures:
            return await send(part)
        if is_stored:
            await send(part)
        raise failures.pop()

    parts._send = broken  # type: ignore[method-assign]  # stands in for another node


BROKEN = PeerUnreachable("the connection broke")
PRODUCER = Producer(7, 0, 0)


def test_a_part_that_may_be_stored_is_not_sent_again_by_the_broker() -> None:
    async def life(node: Node) -> None:
        await grown_topic(node)
        fail(node, 2, BROKEN, is_stored=True)
        with pytest.raises(ReplicationUnknown):
            await send(node, 0, 2)
        assert await counts(node) == [0, 0, 1, 0]

    in_one_life(life)


def test_a_part_with_a_number_is_sent_again_and_stored_once() -> None:
    async def life(node: Node) -> None:
        await grown_topic(node)
        fail(node, 2, BROKEN, is_stored=True)
        await send(node, 0, 2, producer=PRODUCER)
        assert await counts(node) == [1, 0, 1, 0]

    in_one_life(life)


def test_a_part_that_was_refused_is_sent_again_by_the_broker() -> None:
    async def life(node: Node) -> None:
        await grown_topic(node)
        fail(node, 2, NotLeader("orders", 2), is_stored=False)
        await send(node, 0, 2)
        assert await counts(node) == [1, 0, 1, 0]

    in_one_life(life)


def test_what_is_stored_in_one_home_is_not_sent_again_because_another_refuses() -> None:
    """Over REST the broker would do so by itself, for HomeUndecided says that nothing was stored."""

    async def life(node: Node) -> None:
        await grown_topic(node)
        fail(node, 2, HomeUndecided("orders", 0, "the test says so"), is_stored=False, times=1_000)
        with pytest.raises(ReplicationUnknown):
            await send(node, 1, 2)
        assert await counts(node) == [0, 1, 0, 0]

    in_one_life(life)


def test_what_is_stored_in_its_homes_is_not_sent_again_because_the_rest_is_refused() -> None:
    async def life(node: Node) -> None:
        await grown_topic(node)
        here = node._table.get("orders").partition(0)

        def refuse(*given: object, **named: object) -> object:
            raise NotLeader("orders", 0)

        here.append = refuse  # type: ignore[method-assign, assignment]  # another leads since
        with pytest.raises(ReplicationUnknown):
            await send(node, 0, 2)
        with pytest.raises(NotLeader):  # which is told apart where the producer counts
            await send(node, 0, 2, producer=PRODUCER)
        assert (await counts(node))[1:] == [0, 2, 0]

    in_one_life(life)
