"""Delayed records in batches that arrive whole, as Kafka producers send them, and in those of idempotent publishers."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.delays import delayed, later, plain, send_batch
from tests.support.nodes import End, World, create, read_all, read_values, simulate
from tests.support.transactional import Sender

from goqueue.log.compression import Codec
from goqueue.model.acks import Acks
from goqueue.model.delay import DELIVER_AT_HEADER
from goqueue.model.errors import InvalidDelay, OutOfOrderSequence
from goqueue.model.record import NewRecord, Producer
from goqueue.node.node import Node
from goqueue.node.publish import Transaction
from goqueue.node.requests import NewMessage, Outcome


async def new_producer(node: Node) -> Producer:
    id, epoch = await node.producers.init()
    return Producer(id, epoch, 0)


def after(producer: Producer, sequence: int) -> Producer:
    return Producer(producer.id, producer.epoch, sequence)


@pytest.mark.parametrize("codec", list(Codec))
def test_delayed_records_of_a_batch_wait_and_the_others_keep_their_offsets(codec: Codec) -> None:
    async def life(node: Node) -> None:
        await create(node)
        records = [plain(b"a"), delayed(b"b", 5, key=b"k"), plain(b"c"), delayed(b"d", 3)]
        placed = await send_batch(node, records, codec=codec)
        assert (placed.stored.base_offset, placed.stored.end, placed.record_count) == (0, 4, 4)
        await send_batch(node, [plain(b"e")])
        assert [(one.offset, one.value) for one in await read_all(node)] == [(0, b"a"), (2, b"c"), (4, b"e")]
        await asyncio.sleep(6)
        found = await read_all(node)
        assert [(one.offset, one.value) for one in found[3:]] == [(5, b"d"), (6, b"b")]
        assert (found[4].key, found[4].headers) == (b"k", records[1].headers)

    simulate(lambda world: world.live(life))


def test_a_batch_of_nothing_but_delayed_records_is_taken_whole() -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            producer = await new_producer(node)
            await send_batch(node, [delayed(b"a", 5), delayed(b"b", 5)], producer=producer)
            assert await read_values(node) == []
            await send_batch(node, [plain(b"c")], producer=after(producer, 2))
            assert await read_values(node) == [b"c"]

        await world.live(first, end=End.KILL)

        async def second(node: Node) -> None:
            await asyncio.sleep(6)
            assert await read_values(node) == [b"c", b"a", b"b"]

        await world.live(second)

    simulate(main)


def test_a_batch_that_is_sent_again_schedules_nothing_twice() -> None:
    async def life(node: Node) -> None:
        await create(node)
        producer = await new_producer(node)
        records = [plain(b"a"), delayed(b"b", 5)]
        first = await send_batch(node, records, producer=producer)
        again = await send_batch(node, records, producer=producer)
        assert (first.stored.base_offset, again.stored.base_offset) == (0, 0)
        assert again.stored.is_duplicate
        await send_batch(node, [delayed(b"c", 5), plain(b"d")], producer=after(producer, 2))
        assert (await node.scheduler.list("orders")).pending_count == 2
        await asyncio.sleep(6)  # the header lies in the past by now
        again = await send_batch(node, records, producer=producer)
        assert again.stored.is_duplicate
        assert await read_values(node) == [b"a", b"d", b"b", b"c"]

    simulate(lambda world: world.live(life))


def test_two_copies_of_a_batch_at_the_same_time_schedule_its_records_once() -> None:
    async def life(node: Node) -> None:
        await create(node)
        producer = await new_producer(node)
        records = [plain(b"a"), delayed(b"b", 5)]
        placed = await asyncio.gather(*(send_batch(node, records, producer=producer) for _ in range(3)))
        assert sorted(one.stored.is_duplicate for one in placed) == [False, True, True]
        await asyncio.sleep(6)
        assert await read_values(node) == [b"a", b"b"]

    simulate(lambda world: world.live(life))


def test_a_batch_does_not_overtake_one_whose_delayed_records_are_on_their_way_to_the_disk() -> None:
    """Otherwise an idempotent producer with several batches in flight would be out of sequence."""

    async def life(node: Node) -> None:
        await create(node)
        producer = await new_producer(node)
        batches = [
            send_batch(node, [plain(b"a"), delayed(b"x", 5)], producer=producer),
            send_batch(node, [plain(b"b")], producer=after(producer, 2)),
            send_batch(node, [delayed(b"y", 5), plain(b"c")], producer=after(producer, 3)),
            send_batch(node, [plain(b"d")], producer=after(producer, 5)),
        ]
        placed = await asyncio.gather(*batches)
        assert [one.stored.base_offset for one in placed] == [0, 2, 3, 5]
        await asyncio.sleep(6)
        assert await read_values(node) == [b"a", b"b", b"c", b"d", b"x", b"y"]

    simulate(lambda world: world.live(life))


def test_a_batch_out_of_sequence_schedules_nothing() -> None:
    async def life(node: Node) -> None:
        await create(node)
        producer = await new_producer(node)
        await send_batch(node, [plain(b"a")], producer=producer)
        with pytest.raises(OutOfOrderSequence):
            await send_batch(node, [delayed(b"b", 5)], producer=after(producer, 7))
        await asyncio.sleep(6)
        assert await read_values(node) == [b"a"]

    simulate(lambda world: world.live(life))


def test_a_batch_with_an_impossible_delay_is_refused_whole() -> None:
    async def life(node: Node) -> None:
        await create(node, delay_max_ms="10000")
        for wrong in (delayed(b"x", 11), NewRecord(None, b"x", ((DELIVER_AT_HEADER, b"soon"),))):
            with pytest.raises(InvalidDelay):
                await send_batch(node, [plain(b"a"), delayed(b"b", 1), wrong])
        await asyncio.sleep(12)
        assert await read_values(node) == []

    simulate(lambda world: world.live(life))


def test_a_batch_of_a_transaction_cannot_have_delayed_records() -> None:
    async def life(node: Node) -> None:
        await create(node)
        sender = Sender()
        producer = Producer(*await sender.init(node), 0)
        transaction = Transaction(sender.id, may_join=True)
        with pytest.raises(InvalidDelay, match="transaction"):
            await send_batch(node, [delayed(b"b", 1)], producer=producer, transaction=transaction)
        await send_batch(node, [delayed(b"b", -1)], producer=producer, transaction=transaction)
        await sender.commit(node)
        await asyncio.sleep(2)
        assert await read_values(node) == [b"b"]

    simulate(lambda world: world.live(life))


def test_bytes_that_look_like_the_header_but_are_none_change_nothing() -> None:
    async def life(node: Node) -> None:
        await create(node)
        await send_batch(
            node, [plain(b"gq-deliver-at"), NewRecord(b"gq-deliver-at", b"v", (("x", b"gq-deliver-at"),))]
        )
        assert await read_values(node) == [b"gq-deliver-at", b"v"]
        assert node.scheduler.stats() == []

    simulate(lambda world: world.live(life))


def test_an_idempotent_publisher_gets_the_same_answer_for_the_same_request() -> None:
    async def main(world: World) -> None:
        async def send(node: Node, producer: Producer, delay_s: float = 5) -> list[tuple[int | None, bool]]:
            records = [plain(b"a"), delayed(b"b", delay_s), delayed(b"c", delay_s)]
            sent = [NewMessage(one, 0) for one in records]
            outcomes = await node.publisher.publish("orders", sent, acks=Acks.ALL, producer=producer)
            return [_answer(one) for one in outcomes]

        async def first(node: Node) -> tuple[Producer, list[tuple[int | None, bool]]]:
            await create(node)
            await later(node, b"other", 50)
            producer = await new_producer(node)
            answers = await send(node, producer)
            assert answers == [(0, False), (1, True), (2, True)]
            assert await send(node, producer) == answers
            return producer, answers

        producer, answers = await world.live(first, end=End.KILL)

        async def second(node: Node) -> None:
            assert await send(node, producer, delay_s=-60) == answers
            await asyncio.sleep(6)
            assert await send(node, producer, delay_s=-60) == answers
            assert await read_values(node) == [b"a", b"b", b"c"]

        await world.live(second)

    simulate(main)


def _answer(outcome: Outcome) -> tuple[int | None, bool]:
    assert outcome.error is None
    return outcome.offset, outcome.deliver_at_ms is not None
