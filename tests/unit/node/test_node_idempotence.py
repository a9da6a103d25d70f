"""Idempotent producers (trap 24): a batch is stored once however often it is sent, and its sequence is used up only
if it was stored."""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.support.nodes import (
    Died,
    End,
    World,
    codes,
    counted,
    create,
    messages,
    offsets,
    publish,
    read_values,
    simulate,
)

from goqueue.model.acks import Acks
from goqueue.model.codes import Code
from goqueue.model.errors import GoQueueError, InvalidRequest, MessageTooLarge, RequestTooLarge
from goqueue.model.record import Producer
from goqueue.node.node import Node


async def send(node: Node, producer: Producer, *values: bytes, acks: Acks = Acks.ALL) -> list[int]:
    return offsets(await publish(node, *values, producer=producer, acks=acks))


async def refused(node: Node, producer: Producer, *values: bytes) -> set[Code | None]:
    return set(codes(await publish(node, *values, producer=producer)))


def test_a_duplicate_is_answered_with_its_first_offset() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            id, epoch = await node.producers.init()
            await publish(node, b"somebody else")
            for at in range(5):
                producer = Producer(id, epoch, 2 * at)
                first = await send(node, producer, b"a%d" % at, b"b%d" % at)
                assert await send(node, producer, b"a%d" % at, b"b%d" % at) == first
                assert await send(node, producer, b"a%d" % at, b"b%d" % at, acks=Acks.LEADER) == first
            assert await send(node, Producer(id, epoch, 0), b"a0", b"b0") == [1, 2]
            assert len(await read_values(node)) == 11
            assert counted(node, "broker_duplicate_batches_total") == 11

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("end", list(End))
@pytest.mark.parametrize("wait_s", [0, 40])  # with and without a checkpoint in between
def test_a_duplicate_is_known_also_after_a_restart(end: End, wait_s: float) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> Producer:
            await create(node)
            id, epoch = await node.producers.init()
            await send(node, Producer(id, epoch, 0), b"a", b"b")
            await asyncio.sleep(wait_s)
            await send(node, Producer(id, epoch, 2), b"c")
            return Producer(id, epoch, 0)

        producer = await world.live(life, end=end)

        async def after(node: Node) -> None:
            later = Producer(producer.id, producer.epoch, 2)
            assert await send(node, later, b"c") == [2]
            assert await send(node, producer, b"a", b"b") == [0, 1]
            assert await send(node, Producer(producer.id, producer.epoch, 3), b"d") == [3]
            assert await refused(node, Producer(producer.id, producer.epoch, 9), b"e") == {
                Code.OUT_OF_ORDER_SEQUENCE
            }
            assert await read_values(node) == [b"a", b"b", b"c", b"d"]

        await world.live(after)

    simulate(main)


def test_a_duplicate_with_acks_all_waits_until_the_first_is_durable() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            id, epoch = await node.producers.init()
            await publish(node, b"first")
            producer = Producer(id, epoch, 0)
            assert await send(node, producer, b"a", acks=Acks.LEADER) == [1]
            syncs = world.device.counters.syncs
            assert await send(node, producer, b"a") == [1]
            assert world.device.counters.syncs > syncs

        await world.live(life, end=End.POWER_CUT)

        async def after(node: Node) -> None:
            assert await read_values(node) == [b"first", b"a"]

        await world.live(after)

    simulate(main)


def test_a_duplicate_of_what_may_be_lost_is_no_success() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            id, epoch = await node.producers.init()
            await send(node, Producer(id, epoch, 0), b"durable")
            producer = Producer(id, epoch, 1)
            world.device.fail_next("sync")
            assert await refused(node, producer, b"a") == {Code.STORAGE_ERROR}
            for acks in Acks:
                assert codes(await publish(node, b"a", producer=producer, acks=acks)) == [
                    Code.PARTITION_OFFLINE
                ]
            assert await send(node, Producer(id, epoch, 0), b"durable") == [0]

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_sequence_is_not_used_up_by_an_append_that_failed(error: int) -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            id, epoch = await node.producers.init()
            await send(node, Producer(id, epoch, 0), b"a")
            for _ in range(3):
                world.device.fail_next("append", error=error)
                expected = Code.DISK_FULL if error == errno.ENOSPC else Code.STORAGE_ERROR
                assert await refused(node, Producer(id, epoch, 1), b"b") == {expected}
            assert await refused(node, Producer(id, epoch, 2), b"c") == {Code.OUT_OF_ORDER_SEQUENCE}
            assert await send(node, Producer(id, epoch, 1), b"b") == [1]
            assert await read_values(node) == [b"a", b"b"]

        await world.live(life)

    simulate(main)


def test_a_gap_is_refused_and_names_what_is_expected() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node)
            id, epoch = await node.producers.init()
            await send(node, Producer(id, epoch, 0), b"a", b"b")
            (outcome,) = await publish(node, b"c", producer=Producer(id, epoch, 3))
            assert isinstance(outcome.error, GoQueueError)
            assert outcome.error.code is Code.OUT_OF_ORDER_SEQUENCE
            assert outcome.error.details["expected"] == 2
            assert await refused(node, Producer(id, epoch, 1), b"b", b"c") == {Code.OUT_OF_ORDER_SEQUENCE}
            assert await read_values(node) == [b"a", b"b"]

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("end", list(End))
def test_a_stale_epoch_is_fenced_also_after_a_restart(end: End) -> None:
    """Trap 23: and a new epoch is not taken for a duplicate."""

    async def main(world: World) -> None:
        async def life(node: Node) -> int:
            await create(node)
            id, epoch = await node.producers.init()
            assert await send(node, Producer(id, epoch, 0), b"old") == [0]
            assert await send(node, Producer(id, epoch + 1, 0), b"new") == [1]
            return id

        id = await world.live(life, end=end)

        async def after(node: Node) -> None:
            assert await refused(node, Producer(id, 0, 1), b"zombie") == {Code.PRODUCER_FENCED}
            assert await refused(node, Producer(id, 0, 0), b"old") == {Code.PRODUCER_FENCED}
            assert await send(node, Producer(id, 1, 0), b"new") == [1]
            assert await refused(node, Producer(id, 2, 5), b"gap") == {Code.OUT_OF_ORDER_SEQUENCE}
            assert await read_values(node) == [b"old", b"new"]

        await world.live(after)

    simulate(main)


def test_producers_and_partitions_are_counted_apart() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=2)
            one, _ = await node.producers.init()
            other, _ = await node.producers.init()
            for id in (one, other):
                for partition in (0, 1):
                    for sequence in range(2):
                        offsets(
                            await publish(node, b"x", partition=partition, producer=Producer(id, 0, sequence))
                        )
            assert len(await read_values(node)) == 4
            assert len(await read_values(node, partition=1)) == 4

        await world.live(life)

    simulate(main)


def test_several_partitions_in_one_idempotent_request_are_refused_whole() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, partition_count=4, max_message_bytes="1024")
            id, epoch = await node.producers.init()
            producer = Producer(id, epoch, 0)
            request = [
                message
                for at in range(8)
                for message in messages(b"%d" % at, key=b"key %d" % at, partition=None)
            ]
            with pytest.raises(InvalidRequest):
                await node.publisher.publish("orders", request, acks=Acks.ALL, producer=producer)
            with pytest.raises(MessageTooLarge):
                await publish(node, b"fits", b"x" * 2_000, producer=producer)
            assert [await read_values(node, partition=at) for at in range(4)] == [[], [], [], []]
            assert await send(node, producer, b"fits") == [0]

        await world.live(life)

    simulate(main)


def test_a_request_of_several_batches_can_be_sent_again() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, max_message_bytes="1024")
            id, epoch = await node.producers.init()
            values = [b"%d" % at * 400 for at in range(10)]  # two fit a batch
            for sequence in (0, 10):
                first = await send(node, Producer(id, epoch, sequence), *values)
                assert await send(node, Producer(id, epoch, sequence), *values) == first
            assert await read_values(node) == values * 2

        await world.live(life)

    simulate(main)


def test_a_request_of_more_batches_than_are_remembered_is_refused_before_it_is_stored() -> None:
    """Otherwise it would be stored, and refused as out of order when it is sent again."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, max_message_bytes="1024")
            id, epoch = await node.producers.init()
            values = [b"%d" % at * 400 for at in range(10)]
            with pytest.raises(RequestTooLarge):
                await send(node, Producer(id, epoch, 0), *values, b"one more" * 50)
            assert await read_values(node) == []
            await send(node, Producer(id, epoch, 0), *values)

        await world.live(life)

    simulate(main)


def test_a_request_that_was_stored_in_part_is_completed_by_sending_it_again() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, max_message_bytes="1024")
            id, epoch = await node.producers.init()
            await send(node, Producer(id, epoch, 0), b"first")
            values = [b"%d" % at * 400 for at in range(6)]
            world.device.fail_next("append", after=1, error=errno.ENOSPC)
            done = await publish(node, *values, producer=Producer(id, epoch, 1))
            assert codes(done) == [
                None,
                None,
                Code.DISK_FULL,
                Code.DISK_FULL,
                Code.OUT_OF_ORDER_SEQUENCE,
                Code.OUT_OF_ORDER_SEQUENCE,
            ]
            assert await send(node, Producer(id, epoch, 1), *values) == [1, 2, 3, 4, 5, 6]
            assert await read_values(node) == [b"first", *values]

        await world.live(life)

    simulate(main)


def test_sequences_wrap_around_also_in_the_middle_of_a_request() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            await create(node, max_message_bytes="1024")
            id, epoch = await node.producers.init()
            producer = Producer(id, epoch, 2**31 - 3)
            values = [b"%d" % at * 400 for at in range(8)]
            first = await send(node, producer, *values)
            assert await send(node, producer, *values) == first == list(range(8))
            assert await send(node, Producer(id, epoch, 5), b"next") == [8]

        await world.live(life)

    simulate(main)


@pytest.mark.parametrize("seed", range(10))
def test_producer_ids_never_repeat(seed: int) -> None:
    async def main(world: World) -> None:
        seen: list[int] = []
        for _ in range(8):

            async def life(node: Node) -> None:
                for _ in range(3):
                    done = await asyncio.gather(*(node.producers.init() for _ in range(3)))
                    seen.extend(id for id, _ in done)
                    assert {epoch for _, epoch in done} == {0}

            await world.live(life, end=world.device.rng.choice(list(End)))
        assert len(set(seen)) == len(seen) == 72

    simulate(main, seed=seed)


@pytest.mark.parametrize("seed", range(10))
def test_producer_ids_never_repeat_when_the_power_fails_while_they_are_made(seed: int) -> None:
    async def main(world: World) -> None:
        seen: list[int] = []

        async def life(node: Node) -> None:
            for _ in range(5):
                id, _ = await node.producers.init()
                seen.append(id)

        for operation in range(1, 100, 6):
            world.device.crash_after(operation)
            try:
                await world.live(life)
            except Died:
                continue
            finally:
                world.device.calm()
        assert len(set(seen)) == len(seen)
        assert len(seen) > 10

    simulate(main, seed=seed)
