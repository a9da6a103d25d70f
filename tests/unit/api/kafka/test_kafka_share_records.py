"""Which records a ShareFetch gives, when, and how often: transactions, compaction, delays, priorities, counts."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs
from tests.support.dead_letters import dead_letters
from tests.support.delays import later
from tests.support.kafka_calls import Kafka, with_kafka
from tests.support.nodes import CONFIG, create, publish, read_all
from tests.support.share_calls import ACCEPT, REJECT, RELEASE, RENEW, Got, Said, ShareMember, records
from tests.support.transactional import Sender

from goqueue.log.batch import read_header
from goqueue.model.acks import Acks
from goqueue.model.errors import InvalidSetting
from goqueue.model.priority import PRIORITY_HEADER
from goqueue.model.record import NewRecord
from goqueue.node.config import LogConfig
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage

SOON = structs.replace(CONFIG, log=LogConfig(cleanup_interval_ms=1_000, sync_timeout_ms=10_000))


async def joined(kafka: Kafka, node: Node, member: str = "m", **settings: str) -> ShareMember:
    """A member of a group with these settings that reads from the beginning."""
    named = {name.replace("_", "."): text for name, text in settings.items()}
    await node.groups.configure("g", {"share.auto.offset.reset": "earliest", **named})
    one = ShareMember(kafka, node, member=member)
    await one.join()
    return one


def values(got: list[Got]) -> list[bytes | None]:
    return [one.value for one in got]


# -------------------------------------------------------------------- transactions


@pytest.mark.parametrize("limit", [1, 2, 500])
def test_records_of_an_aborted_transaction_are_never_given(limit: int) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        one = await joined(kafka, node, share_isolation_level="read_committed")
        sender = Sender()
        await sender.init(node)
        await publish(node, b"a")
        await sender.write(node, b"never", b"ever")
        await publish(node, b"b")
        await sender.end(node, is_commit=False)
        await sender.write(node, b"c")
        await sender.end(node, is_commit=True)
        got = found = await one.open(limit=limit, wait_ms=1_000)
        while got:
            got = await one.fetch(*[Said(each.offset, each.offset, [ACCEPT]) for each in got], limit=limit)
            found = found + got
        assert values(found) == [b"a", b"b", b"c"]
        assert node.queue.committed("g", "orders", 0) == node.topics.partition("orders", 0).latest

    with_kafka(main)


def test_a_waiting_fetch_is_not_answered_by_a_transaction_that_is_aborted() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        one = await joined(kafka, node)
        sender = Sender()
        await sender.init(node)
        waiting = asyncio.create_task(one.open(wait_ms=10_000))
        await sender.write(node, b"never")
        await sender.end(node, is_commit=False)
        await asyncio.sleep(1)
        assert not waiting.done()
        await publish(node, b"a")
        assert values(await waiting) == [b"a"]

    with_kafka(main)


def test_batches_of_a_transaction_come_without_those_that_were_aborted_or_end_it() -> None:
    """A client that does not look at control batches and aborted ones must not find any."""

    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        one = await joined(kafka, node)
        sender = Sender()
        await sender.init(node)
        for is_commit in (True, False, True):
            await sender.write(node, b"commit" if is_commit else b"abort")
            await sender.end(node, is_commit=is_commit)
        await asyncio.sleep(1)
        answer = await one.ask(partitions=[0])
        assert values(records(answer)) == [b"commit", b"commit"]
        data = bytes(answer.responses[0].partitions[0].records)
        while data:
            header = read_header(data)
            assert not header.is_control
            assert b"abort" not in data[: header.size]
            data = data[header.size :]

    with_kafka(main)


def test_a_group_that_would_read_what_is_not_committed_is_refused() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        with pytest.raises(InvalidSetting, match="read_committed"):
            await node.groups.configure("g", {"share.isolation.level": "read_uncommitted"})

    with_kafka(main)


# -------------------------------------------------------------------- compaction


async def held(kafka: Kafka, node: Node, *, visibility_ms: int = 120_000) -> ShareMember:
    """A member that holds the first record of a log, which is compacted away meanwhile."""
    await create(
        node,
        cleanup_policy="compact",
        segment_bytes="1024",
        min_cleanable_dirty_ratio="0",
        visibility_ms=str(visibility_ms),
    )
    one = await joined(kafka, node)
    await publish(node, b"first", key=b"key")
    for at in range(20):
        await publish(node, b"%02d" % at * 200, key=b"key")
    assert values(await one.open(limit=1)) == [b"first"]
    await asyncio.sleep(10)
    assert (await read_all(node))[0].offset > 10
    return one


def test_a_record_that_is_compacted_away_in_a_members_hands_is_accepted_as_ever() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await held(kafka, node)
        assert await one.codes(Said(0, 0, [ACCEPT])) == [0]
        assert (node.queue.committed("g", "orders", 0) or 0) > 0

    with_kafka(main, config=SOON)


@pytest.mark.parametrize("kind", [RELEASE, REJECT])
def test_a_record_that_was_compacted_away_does_not_come_back(kind: int) -> None:
    """Nor does it hold up what lies behind it, whatever its member says of it."""

    async def main(kafka: Kafka, node: Node) -> None:
        one = await held(kafka, node)
        assert await one.codes(Said(0, 0, [kind])) == [0]
        got = await one.fetch(wait_ms=5_000)
        assert got
        assert got[0].offset > 0
        assert await one.codes(*[Said(each.offset, each.offset, [ACCEPT]) for each in got]) == [0]
        assert await one.fetch() == []
        assert node.queue.committed("g", "orders", 0) == 21

    with_kafka(main, config=SOON)


def test_a_lease_that_ends_after_its_record_was_compacted_away_leaves_nothing() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await held(kafka, node, visibility_ms=30_000)
        await asyncio.sleep(35)
        other = await joined(kafka, node, "other")
        got = await other.open(wait_ms=5_000)
        assert got
        assert got[0].offset > 0

    with_kafka(main, config=SOON)


# -------------------------------------------------------------------- delays and priorities


def test_a_deliver_at_header_wakes_a_waiting_fetch_at_its_time() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        one = await joined(kafka, node)
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiting = asyncio.create_task(one.open(wait_ms=25_000))
        await later(node, b"due", 10)
        assert values(await waiting) == [b"due"]
        assert 10 <= loop.time() - began < 10.5

    with_kafka(main)


def test_a_released_record_wakes_who_waits_and_one_that_timed_out_does_after_its_backoff() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, visibility_ms="5000", retry_backoff_ms="3000")
        await publish(node, b"a")
        one, other = await joined(kafka, node, "one"), await joined(kafka, node, "other")
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert values(await one.open()) == [b"a"]
        assert await other.open(wait_ms=20_000) == [Got(0, 0, b"a", 2)]
        assert 8 <= loop.time() - began < 8.5
        waiting = asyncio.create_task(one.fetch(wait_ms=20_000))
        await asyncio.sleep(1)
        await other.codes(Said(0, 0, [RELEASE]))
        assert await waiting == [Got(0, 0, b"a", 3)]
        assert loop.time() - began < 10

    with_kafka(main)


def test_fetches_give_the_more_urgent_first() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        one = await joined(kafka, node)
        for priority in (4, 3, 2, 1, 0):
            header = (PRIORITY_HEADER, b"%d" % priority)
            message = NewMessage(NewRecord(None, b"%d" % priority, (header,)), 0)
            await node.publisher.publish("orders", [message], acks=Acks.ALL)
        got = await one.open(limit=1)
        for _ in range(4):
            got += await one.fetch(limit=1)
        assert values(got) == [b"0", b"1", b"2", b"3", b"4"]

    with_kafka(main)


# -------------------------------------------------------------------- counts


def test_each_run_of_acquired_records_has_its_own_delivery_count() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        await publish(node, b"a", b"b", b"c", b"d", b"e")
        one = await joined(kafka, node)
        await one.open(limit=3)
        await one.codes(Said(0, 2, [RELEASE, ACCEPT, RELEASE]))
        await one.fetch(limit=1)
        await one.codes(Said(0, 0, [RELEASE]))
        answer = await one.ask()
        (part,) = answer.responses[0].partitions
        runs = [(run.first_offset, run.last_offset, run.delivery_count) for run in part.acquired_records]
        assert runs == [(0, 0, 3), (2, 2, 2), (3, 4, 1)]

    with_kafka(main)


def test_the_limit_of_deliveries_by_kafkas_name_is_the_last_before_the_dead_letters() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        await publish(node, b"bad", b"good")
        one = await joined(kafka, node, share_delivery_count_limit="2")
        got = await one.open()
        for count in (1, 2):
            assert got[0] == Got(0, 0, b"bad", count)
            assert await dead_letters(node) == []
            got = await one.fetch(Said(0, 0, [RELEASE]), wait_ms=5_000)
        assert got == []
        (letter,) = await dead_letters(node)
        assert letter.value == b"bad"

    with_kafka(main)


def test_a_renewal_that_comes_with_a_fetch_keeps_the_record_and_the_count() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, visibility_ms="10000", retry_backoff_ms="1000")
        await publish(node, b"a", b"b")
        one, other = await joined(kafka, node, "one"), await joined(kafka, node, "other")
        await one.open()
        for _ in range(5):
            await asyncio.sleep(8)
            answer = await one.ask(Said(0, 0, [RENEW]), is_renew_ack=True, limit=0)
            assert records(answer) == []
        assert await other.open() == [Got(0, 1, b"b", 2)]
        assert await one.codes(Said(0, 0, [ACCEPT])) == [0]
        await asyncio.sleep(5)
        assert await other.codes(Said(1, 1, [ACCEPT])) == [0]
        assert node.queue.committed("g", "orders", 0) == 2

    with_kafka(main)
