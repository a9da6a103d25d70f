"""Topics with `scaling=keyed` on one node: fences, parts of batches, holds. test_node_keyed_quiet.py has the moment of quiet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.keyed_batches import KEYED, grown, key_of, keys_in, scaling_of, send, until
from tests.support.keyed_topics import Classic
from tests.support.nodes import End, World, codes, create, in_one_life, read_all, simulate

from goqueue.core.cluster.commands import ReleaseHolds
from goqueue.core.cluster.scaling import Gate
from goqueue.core.group.commands import CommitOffsets, NewOffset
from goqueue.core.producer import relayed_id
from goqueue.log.batch import build_batch
from goqueue.log.compression import Codec
from goqueue.model.acks import Acks
from goqueue.model.cluster_errors import HomeUndecided
from goqueue.model.codes import Code
from goqueue.model.delay import DELIVER_AT_HEADER
from goqueue.model.errors import InvalidBatch, OutOfOrderSequence
from goqueue.model.record import NewRecord, Producer
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage, ReadQuery

# ---------------------------------------------------------------- fences


def test_a_leader_says_where_its_log_ended_when_the_topic_grew() -> None:
    async def life(node: Node) -> None:
        await create(node, "t", 2, **KEYED)
        for _ in range(3):
            await send(node, 1, key_of(1, 2))
        await node.topics.grow("t", 4)
        await until(node, lambda now: now.stage == "steady")
        assert set(scaling_of(node).gates) == {Gate(2, 0, 0), Gate(3, 1, 3)}

    in_one_life(life)


# ---------------------------------------------------------------- parts


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("producer", [None, Producer(7, 0, 0)])
def test_records_of_a_stale_producer_go_where_their_keys_live(
    producer: Producer | None, codec: Codec
) -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        stays, goes = key_of(0, 4), key_of(2, 4)
        placed = await send(node, 0, stays, goes, None, stays, producer=producer, codec=codec)
        assert (placed.stored.base_offset, placed.stored.end) == (0, 4)
        assert await keys_in(node, 0) == [stays, None, stays]
        assert await keys_in(node, 2) == [goes]
        assert [record.offset for record in await read_all(node, "t", 0)] == [0, 2, 3]

    in_one_life(life)


def test_a_batch_that_is_sent_again_is_stored_once_in_every_home() -> None:
    async def life(node: Node) -> None:
        await grown(node, 1, 4)
        keys = [key_of(index, 4) for index in range(4)]
        for sequence in (0, 4, 4, 0, 8):
            await send(node, 0, *keys, producer=Producer(7, 0, sequence))
        assert [await keys_in(node, index) for index in range(4)] == [[key] * 3 for key in keys]

    in_one_life(life)


def test_a_part_that_arrived_before_the_rest_failed_is_not_stored_again() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        stays, goes = key_of(0, 4), key_of(2, 4)
        here = node._table.get("t").partition(0)
        append = here.append
        failures = [HomeUndecided("t", 0, "the test says so")]

        def fail_once(*given: object, **named: object) -> object:
            if failures:
                raise failures.pop()
            return append(*given, **named)  # type: ignore[arg-type]  # as they came

        here.append = fail_once  # type: ignore[method-assign, assignment]  # stands in for a crash
        producer = Producer(7, 0, 0)
        with pytest.raises(HomeUndecided, match="the test"):
            await send(node, 0, stays, goes, producer=producer)
        assert (await keys_in(node, 0), await keys_in(node, 2)) == ([], [goes])
        with pytest.raises(
            HomeUndecided, match="sequence 0 comes before"
        ):  # although 7 is new to the partition
            await send(node, 0, stays, goes, producer=Producer(7, 0, 2))
        await send(node, 0, stays, goes, producer=producer)
        await send(node, 0, stays, goes, producer=Producer(7, 0, 2))
        assert (await keys_in(node, 0), await keys_in(node, 2)) == ([stays] * 2, [goes] * 2)

    in_one_life(life)


def test_nothing_is_sent_on_of_a_batch_that_is_out_of_order() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        stays, goes = key_of(0, 4), key_of(2, 4)
        await send(node, 0, stays, goes, producer=Producer(7, 0, 0))
        with pytest.raises(OutOfOrderSequence):
            await send(node, 0, stays, goes, producer=Producer(7, 0, 4))
        assert await keys_in(node, 2) == [goes]

    in_one_life(life)


def test_while_a_home_is_not_decided_nothing_of_the_batch_is_stored() -> None:
    async def life(node: Node) -> None:
        await create(node, "t", 2, **KEYED)
        fences = asyncio.Event()
        settled = node._table.get("t").partition(0).settled

        async def late(end: int, **options: Any) -> None:
            await fences.wait()
            await settled(end, **options)

        node._table.get("t").partition(0).settled = late  # type: ignore[method-assign]  # a slow disk
        await node.topics.grow("t", 4)
        with pytest.raises(HomeUndecided, match="does not take them yet"):
            await send(node, 0, key_of(0, 4), key_of(2, 4))
        await until(node, lambda now: now.unfenced == (0,))
        fences.set()
        await until(node, lambda now: now.stage == "steady")
        assert await keys_in(node, 0) == await keys_in(node, 2) == []

    in_one_life(life)


def test_a_client_that_uses_an_id_of_what_is_sent_on_is_refused() -> None:
    async def life(node: Node) -> None:
        await create(node, "t", 1)
        with pytest.raises(InvalidBatch, match="only partitions use"):
            await send(node, 0, b"k", producer=Producer(relayed_id(7, 0), 0, 0))

    in_one_life(life)


# ---------------------------------------------------------------- REST


def test_messages_with_a_key_go_home_whatever_partition_was_given() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        messages = [NewMessage(NewRecord(key_of(index, 4), b""), 0) for index in range(4)]
        outcomes = await node.publisher.publish("t", messages, acks=Acks.ALL)
        assert [outcome.partition for outcome in outcomes] == [0, 1, 2, 3]
        free = [NewMessage(message.record) for message in messages]
        outcomes = await node.publisher.publish("t", free, acks=Acks.ALL)
        assert [(outcome.partition, outcome.offset) for outcome in outcomes] == [
            (each, 1) for each in range(4)
        ]

    in_one_life(life)


def test_who_counts_its_messages_is_told_where_those_are_that_were_sent_on() -> None:
    async def life(node: Node) -> None:
        await grown(node, 2, 4)
        messages = [NewMessage(NewRecord(key_of(index, 4), b""), 0) for index in (0, 2, 0)]
        outcomes = await node.publisher.publish("t", messages, acks=Acks.ALL, producer=Producer(7, 0, 0))
        assert [(one.partition, one.offset) for one in outcomes] == [(0, 0), (2, 1), (0, 2)]
        record = (await read_all(node, "t", 2))[0]
        assert (record.key, record.offset) == (key_of(2, 4), 1)

    in_one_life(life)


def test_messages_published_while_a_topic_grows_wait_for_it() -> None:
    async def life(node: Node) -> None:
        await create(node, "t", 2, **KEYED)
        growing = asyncio.create_task(node.topics.grow("t", 8))
        for at in range(50):
            outcomes = await node.publisher.publish(
                "t", [NewMessage(NewRecord(b"k%d" % at, b""))], acks=Acks.ALL
            )
            assert codes(outcomes) == [None]
        await growing
        await until(node, lambda now: now.stage == "steady")

    in_one_life(life)


# ---------------------------------------------------------------- holds and shrinking


async def shrinking(node: Node, count: int) -> None:
    """As far as it goes without the groups."""
    await node.topics.shrink("t", count, discards_read=True)
    await until(node, lambda now: not now.unfenced)


async def release(node: Node) -> None:
    await node._metadata.execute(ReleaseHolds("t", node.topics.id_of("t")))


def test_what_is_held_is_shown_to_nobody_until_it_is_released() -> None:
    async def life(node: Node) -> None:
        await create(node, "t", 4, **KEYED)
        stays, goes = key_of(1, 4), key_of(3, 4)
        await send(node, 1, stays)
        await send(node, 3, goes)
        await Classic(node, 4, "t").join()  # and gives up nothing
        await shrinking(node, 2)
        await send(node, 3, goes)
        await send(node, 1, stays)
        partition = node._table.get("t").partition(1)
        assert (partition.log.high_watermark, partition.visible_end, partition.last_stable_offset) == (
            3,
            1,
            1,
        )
        assert await keys_in(node, 1) == [stays]
        assert await keys_in(node, 3) == [goes]
        waiting = asyncio.create_task(node.reader.read("t", 1, ReadQuery(offset=1, wait_ms=20_000)))
        await asyncio.sleep(1)
        assert not waiting.done()
        await release(node)
        assert [record.key for record in (await waiting).records] == [goes, stays]

    in_one_life(life)


def test_partitions_that_go_send_everything_on_and_are_drained() -> None:
    async def life(node: Node) -> None:
        await create(node, "t", 4, **KEYED)
        goes = key_of(3, 4)
        await send(node, 3, goes, producer=Producer(7, 0, 0))
        await node.groups.commit(CommitOffsets("late", (NewOffset("t", 3, 0),)))
        await shrinking(node, 1)
        await send(node, 3, goes, None, producer=Producer(7, 0, 1))
        await send(node, 3, goes, producer=Producer(7, 0, 3))
        await until(node, lambda now: now.stage == "draining")
        assert await keys_in(node, 3) == [goes]
        assert await keys_in(node, 0) == [goes, None, goes]
        assert [gate for gate in scaling_of(node).gates if gate.behind == 3] == [Gate(0, 3, 1)]
        await until(node, lambda now: not now.undrained)
        assert scaling_of(node).stage == "draining", "a group has yet to read it"

    in_one_life(life)


async def shrunk_but_open(node: Node) -> None:
    """The catalogue has let go of partition 1, and its log is still there."""
    await create(node, "t", 2, **KEYED)
    node._local.follow_at_last = never  # type: ignore[method-assign]  # a slow disk
    await shrinking(node, 1)
    await until(node, lambda now: now.stage == "steady")
    assert 1 in node._table.get("t").local


async def never(name: str) -> None:
    """The partitions that run here stay as they are."""


@pytest.mark.parametrize("key", [None, key_of(0, 2), key_of(1, 2)])
@pytest.mark.parametrize("producer", [None, Producer(7, 0, 0)])
def test_a_partition_that_is_no_more_takes_nothing(key: bytes | None, producer: Producer | None) -> None:
    async def life(node: Node) -> None:
        await shrunk_but_open(node)
        with pytest.raises(HomeUndecided):
            await send(node, 1, key, producer=producer)
        assert await keys_in(node, 0) == await keys_in(node, 1) == []

    in_one_life(life)


def test_nothing_waits_for_its_time_in_a_partition_that_is_no_more() -> None:
    async def life(node: Node) -> None:
        await shrunk_but_open(node)
        later = ((DELIVER_AT_HEADER, b"%d" % (node.clock.now_ms() + 60_000)),)
        records = [NewRecord(None, b"x", later)]
        batch = build_batch(records, node.clock.now_ms())
        with pytest.raises(HomeUndecided):
            await node.publisher.append_batch("t", 1, batch, acks=Acks.ALL)
        outcomes = await node.publisher.publish("t", [NewMessage(records[0], 1)], acks=Acks.ALL)
        assert codes(outcomes) == [Code.HOME_UNDECIDED]

    in_one_life(life)


def test_what_a_kill_left_of_partitions_that_are_no_more_is_in_nobodys_way() -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node, "t", 2, **KEYED)
            await send(node, 1, key_of(1, 2))
            node._local.follow_at_last = never  # type: ignore[method-assign]  # killed before it came to that
            await shrinking(node, 1)
            await until(node, lambda now: now.stage == "steady")

        async def second(node: Node) -> None:
            await node.topics.grow("t", 2)
            await until(node, lambda now: now.stage == "steady")
            assert await keys_in(node, 1) == []

        await world.live(first, end=End.KILL)
        await world.live(second)

    simulate(main)


def test_a_message_without_a_key_for_a_partition_that_goes_waits_where_it_stays() -> None:
    async def life(node: Node) -> None:
        await create(node, "t", 2, **KEYED)
        await send(node, 1, None)
        await Classic(node, 2, "t").join()
        await shrinking(node, 1)
        later = ((DELIVER_AT_HEADER, b"%d" % (node.clock.now_ms() + 60_000)),)
        messages = [NewMessage(NewRecord(None, b"x", headers), 1) for headers in ((), later)]
        outcomes = await node.publisher.publish("t", messages, acks=Acks.ALL)
        assert [(one.partition, one.error) for one in outcomes] == [(0, None), (0, None)]

    in_one_life(life)
