"""Members of share groups that wait: they may go meanwhile, or come back before they are gone, and are woken in time."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs
from tests.support.kafka_calls import Kafka, with_kafka
from tests.support.nodes import CONFIG, SLUGGISH, World, create, publish, simulate
from tests.support.share_calls import ACCEPT, Got, Said, ShareMember, records

from goqueue.api.kafka.call import Closing
from goqueue.model.errors import UnknownMember
from goqueue.node.config import LogConfig, QueueConfig
from goqueue.node.groups.member_requests import GroupMode, Join, PollRequest, Who
from goqueue.node.node import Node
from goqueue.node.queue.feed import Feed

UNKNOWN_TOPIC_OR_PARTITION = 3


async def joined(kafka: Kafka, node: Node, member: str = "m") -> ShareMember:
    """A member of a group that reads from the beginning."""
    await node.groups.configure("g", {"share.auto.offset.reset": "earliest"})
    one = ShareMember(kafka, node, member=member)
    await one.join()
    return one


async def rest_member(node: Node, member: str) -> Who:
    await node.members.join(Join("g", "test", ("orders",), member_id=member), GroupMode.QUEUE)
    return Who("g", member)


def test_a_fetch_that_waits_gives_nothing_to_a_member_that_has_left() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        one, other = await joined(kafka, node, "one"), await joined(kafka, node, "other")
        waiting = asyncio.create_task(one.open(wait_ms=20_000))
        await asyncio.sleep(1)
        await one.leave()
        await publish(node, b"a")
        assert await waiting == []
        assert await other.open() == [Got(0, 0, b"a", 1)]

    with_kafka(main)


def test_a_fetch_that_waits_gives_nothing_to_a_session_that_was_replaced() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        one = await joined(kafka, node)
        waiting = asyncio.create_task(one.open(wait_ms=20_000))
        await asyncio.sleep(1)
        again = ShareMember(kafka, node)  # the same member over another connection
        assert await again.open() == []
        await publish(node, b"a")
        assert await waiting == []
        assert await again.fetch() == [Got(0, 0, b"a", 1)]
        assert await again.codes(Said(0, 0, [ACCEPT])) == [0]

    with_kafka(main)


def test_a_poll_that_waits_gives_nothing_to_a_member_that_has_left() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        who, other = await rest_member(node, "one"), await rest_member(node, "other")
        waiting = asyncio.create_task(node.members.poll(PollRequest(who, 10, 2_000)))
        await asyncio.sleep(1)
        await node.members.leave(who)
        await publish(node, b"a")
        with pytest.raises(UnknownMember):
            await waiting
        polled = await node.members.poll(PollRequest(other, 10, 0))
        assert [one.record.value for one in polled.messages] == [b"a"]

    with_kafka(main)


def test_what_a_new_session_gets_is_not_given_back_with_that_of_the_one_before() -> None:
    """A client comes back over another connection while what it held in two partitions is still being given back."""

    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            kafka = Kafka(node)
            await create(node, partition_count=2)
            await publish(node, b"a")
            await publish(node, b"b", b"c", partition=1)
            one, other = await joined(kafka, node, "one"), await joined(kafka, node, "other")
            assert await one.open(0, 1, limit=2) == [Got(0, 0, b"a", 1), Got(1, 0, b"b", 1)]
            world.loop.executor_latency = SLUGGISH
            one.closing.run()
            one.closing = Closing()
            got = await one.open(0, 1, wait_ms=20_000)
            while len(got) < 3:
                got += await one.fetch(wait_ms=20_000)
            assert sorted(got) == [Got(0, 0, b"a", 2), Got(1, 0, b"b", 2), Got(1, 1, b"c", 1)]
            assert await other.open(0, 1) == []
            assert await one.codes(Said(0, 0, [ACCEPT]), Said(0, 1, [ACCEPT], partition=1)) == [0, 0]

        await world.live(life)

    simulate(main, config=structs.replace(CONFIG, log=LogConfig(sync_timeout_ms=30_000)))


def test_the_end_of_a_session_that_was_replaced_takes_nothing_from_the_next() -> None:
    async def main(world: World) -> None:
        async def life(node: Node) -> None:
            kafka = Kafka(node)
            await create(node)
            await publish(node, b"a", b"b")
            one, other = await joined(kafka, node, "one"), await joined(kafka, node, "other")
            assert len(await one.open(limit=1)) == 1
            world.loop.executor_latency = SLUGGISH
            goodbye = asyncio.create_task(one.say(Said(0, 0, [ACCEPT]), epoch=-1))
            await asyncio.sleep(0.1)
            again = ShareMember(kafka, node, member="one")
            got = await again.open(wait_ms=20_000)
            assert got == [Got(0, 1, b"b", 1)]
            assert (await goodbye).error_code == 0
            assert await other.open() == []
            assert await again.codes(Said(1, 1, [ACCEPT])) == [0]

        await world.live(life)

    simulate(main, config=structs.replace(CONFIG, log=LogConfig(sync_timeout_ms=30_000)))


def test_a_lease_that_ends_while_more_is_fetched_does_not_come_twice_in_one_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was taken first is over before the rest is read: it comes again with the next answer, and no delivery is counted
    that nobody was told of."""
    fill, waits_s = Feed.fill, [0.0, 5.0]  # the disk is slow when the fetch looks for more

    async def fill_slowly(feed: Feed, count: int) -> None:
        await asyncio.sleep(waits_s.pop(0) if waits_s else 0.0)
        await fill(feed, count)

    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, visibility_ms="1000", retry_backoff_ms="100")
        for value in (b"a", b"b"):
            await publish(node, value)
        one = await joined(kafka, node)
        monkeypatch.setattr(Feed, "fill", fill_slowly)
        # One record is sure to fit, and is taken first.
        assert await one.open(bytes_max=1024 * 1024) == [Got(0, 0, b"a", 1)]
        assert waits_s == []
        assert await one.fetch() == [Got(0, 0, b"a", 2), Got(0, 1, b"b", 1)]

    with_kafka(main)


# -------------------------------------------------------------------- what else wakes who waits


def test_a_fetch_that_waits_because_its_member_holds_too_much_goes_on_when_that_is_less() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        await publish(node, b"a", b"b", b"c")
        one = await joined(kafka, node)
        assert len(await one.open()) == 2
        loop = asyncio.get_running_loop()
        began = loop.time()
        waiting = asyncio.create_task(one.ask(epoch=1, wait_ms=20_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        assert await one.codes(Said(0, 0, [ACCEPT]), epoch=2) == [0]
        assert records(await waiting) == [Got(0, 2, b"c", 1)]
        assert loop.time() - began < 2

    with_kafka(main, config=structs.replace(CONFIG, queue=QueueConfig(in_flight_count_max=2)))


def test_a_fetch_that_waits_for_a_topic_hears_of_its_end_and_goes_on_with_the_others() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        for topic in ("orders", "letters"):
            await create(node, topic)
        one = await joined(kafka, node)
        await one.open()
        waiting = asyncio.create_task(one.ask(partitions=[0], topic="letters", wait_ms=20_000))
        await asyncio.sleep(1)
        deleted = one.topic_id("orders")
        await node.topics.delete("orders")
        (found,) = (await waiting).responses
        assert found.topic_id == deleted
        assert [part.error_code for part in found.partitions] == [UNKNOWN_TOPIC_OR_PARTITION]
        waiting = asyncio.create_task(one.ask(wait_ms=20_000))
        await publish(node, b"a", topic="letters")
        letters = one.topic_id("letters")
        (found,) = [topic for topic in (await waiting).responses if topic.topic_id == letters]
        assert [len(part.acquired_records) for part in found.partitions] == [1]

    with_kafka(main)
