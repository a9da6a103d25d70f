"""The traps of the specification that a member of a share group can fall into, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.support.dead_letters import dead_letters
from tests.support.delays import later
from tests.support.kafka_calls import Kafka, with_kafka
from tests.support.nodes import End, World, create, publish, simulate
from tests.support.share_calls import ACCEPT, REJECT, RELEASE, RENEW, Got, Said, ShareMember
from tests.support.transactional import Sender

from goqueue.model.acks import Acks
from goqueue.model.priority import LANE_COUNT, PRIORITY_HEADER, WEIGHTS
from goqueue.model.record import NewRecord
from goqueue.node.node import Node
from goqueue.node.requests import NewMessage

INVALID_RECORD_STATE = 121


async def joined(kafka: Kafka, node: Node, *topics: str, group: str = "g", member: str = "m") -> ShareMember:
    """A member of a group that reads from the beginning."""
    await node.groups.configure(group, {"share.auto.offset.reset": "earliest"})
    one = ShareMember(kafka, node, group=group, member=member)
    await one.join(*topics)
    return one


async def send(node: Node, *priorities: int) -> None:
    records = [NewRecord(None, b"%d" % one, ((PRIORITY_HEADER, b"%d" % one),)) for one in priorities]
    await node.publisher.publish("orders", [NewMessage(one, 0) for one in records], acks=Acks.ALL)


def accepted(got: list[Got]) -> list[Said]:
    return [Said(one.offset, one.offset, [ACCEPT], one.partition) for one in got]


def values(got: list[Got]) -> list[bytes | None]:
    return [one.value for one in got]


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_trap_1_interleaved_priorities_are_all_delivered_to_a_share_member(limit: int) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        await send(node, 2, 2, 0, 4, 2, 1, 2, 2)
        one = await joined(kafka, node)
        got = found = await one.open(limit=limit)
        while got:
            got = await one.fetch(*accepted(got), limit=limit)
            found += got
        assert sorted(one.offset for one in found) == list(range(8))
        assert node.queue.committed("g", "orders", 0) == 8
        if limit == 1:  # an answer is in the order of the log, the answers are in that of the lanes
            assert found[0].offset == 2

    with_kafka(main)


def test_trap_2_a_delayed_record_reaches_a_share_member_that_has_read_past_it() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        await later(node, b"delayed", 10)
        await publish(node, b"at once")
        one = await joined(kafka, node)
        got = await one.open()
        assert values(got) == [b"at once"]
        assert values(await one.fetch(*accepted(got), wait_ms=20_000)) == [b"delayed"]

    with_kafka(main)


def test_trap_2_an_uncommitted_record_comes_to_a_share_member_once_it_is_committed() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        one = await joined(kafka, node)
        sender = Sender()
        await sender.init(node)
        await publish(node, b"before")
        await sender.write(node, b"in doubt")
        await publish(node, b"after")
        got = await one.open()
        assert values(got) == [b"before"]
        assert await one.fetch(*accepted(got)) == []
        await sender.commit(node)
        assert values(await one.fetch(wait_ms=5_000)) == [b"in doubt", b"after"]

    with_kafka(main)


@pytest.mark.parametrize("limit", [1, 10, 100])
def test_trap_10_what_share_members_get_is_in_the_weights(limit: int) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        for _ in range(60):
            await send(node, *[lane for lane in range(LANE_COUNT) for _ in range(10)])
        one = await joined(kafka, node)
        counts: Counter[int] = Counter()
        got = await one.open(limit=limit)
        while got and counts.total() < 500:
            counts.update(int(one.value or b"") for one in got)
            got = await one.fetch(*accepted(got), limit=min(limit, 500 - counts.total() or 1))
        assert counts.total() == 500
        for lane, weight in enumerate(WEIGHTS):
            assert abs(counts[lane] / 500 - weight / 100) < 0.02

    with_kafka(main)


def test_trap_12_two_share_groups_both_get_every_record() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, partition_count=2)
        for partition in (0, 1):
            await publish(node, b"a", b"b", partition=partition)
        for group in ("one", "two"):
            member = await joined(kafka, node, group=group)
            got = await member.open(0, 1)
            assert sorted((one.partition, one.value) for one in got) == [
                (0, b"a"),
                (0, b"b"),
                (1, b"a"),
                (1, b"b"),
            ]
            await member.say(*accepted(got))
            assert node.queue.committed(group, "orders", 1) == 2

    with_kafka(main)


@pytest.mark.parametrize("is_silent", [True, False])
def test_trap_13_a_retry_is_a_redelivery_and_only_then_comes_the_dead_letter(is_silent: bool) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, max_retries="2", visibility_ms="5000")
        await publish(node, b"bad")
        one = await joined(kafka, node)
        got = await one.open()
        for count in (1, 2, 3):
            assert got == [Got(0, 0, b"bad", count)]
            assert await dead_letters(node) == []
            said = [] if is_silent else [Said(0, 0, [RELEASE])]
            got = await one.fetch(*said, wait_ms=20_000)
        assert got == []
        assert [letter.value for letter in await dead_letters(node)] == [b"bad"]

    with_kafka(main)


def test_trap_14_a_record_that_takes_minutes_does_not_stop_its_partition() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        await publish(node, *[b"%d" % at for at in range(100)])
        slow = await joined(kafka, node, member="slow")
        quick = await joined(kafka, node, member="quick")
        assert values(await slow.open(limit=1)) == [b"0"]
        got = await quick.open()
        assert len(got) == 99
        for step in range(30):
            await asyncio.sleep(20)
            for one in (slow, quick):
                await one.heartbeat(one.member_epoch)
            assert await slow.codes(Said(0, 0, [RENEW]), is_renew_ack=True) == [0]
            await publish(node, b"new %d" % step)
            got = await quick.fetch(*accepted(got))
            assert values(got) == [b"new %d" % step]
            assert node.queue.committed("g", "orders", 0) == 0
        await quick.say(*accepted(got))
        assert await slow.codes(Said(0, 0, [ACCEPT])) == [0]
        assert node.queue.committed("g", "orders", 0) == 130

    with_kafka(main)


def test_trap_15_a_rejected_record_does_not_hold_the_committed_offset_back() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        await publish(node, b"bad", b"good")
        one = await joined(kafka, node)
        await one.open()
        await one.say(Said(1, 1, [ACCEPT]))
        assert node.queue.committed("g", "orders", 0) == 0
        await one.say(Said(0, 0, [REJECT]))
        assert node.queue.committed("g", "orders", 0) == 2

    with_kafka(main)


def test_trap_16_an_idle_share_fetch_ends_in_time_without_an_error() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        one = await joined(kafka, node)
        await one.open()
        began = asyncio.get_running_loop().time()
        answer = await one.ask(wait_ms=30_000)
        assert (answer.error_code, list(answer.responses)) == (0, [])
        assert asyncio.get_running_loop().time() - began == pytest.approx(30, abs=0.5)

    with_kafka(main)


def test_trap_17_a_share_group_on_three_topics_gets_all_three() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        topics = ("orders", "bills", "letters")
        for topic in topics:
            await create(node, topic)
            await publish(node, topic.encode(), topic=topic)
        one = await joined(kafka, node, *topics)
        found = [await one.open(topic=topics[0])]
        found += [await one.fetch(partitions=[0], topic=topic) for topic in topics[1:]]
        assert [values(got) for got in found] == [[topic.encode()] for topic in topics]
        for topic in topics:
            await publish(node, b"more", topic=topic)
        assert values(await one.fetch()) == [b"more"] * 3  # the session has them all

    with_kafka(main)


def test_trap_18_a_zombie_finishes_nothing_of_what_another_has_now() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, visibility_ms="5000")
        await publish(node, b"a")
        zombie = await joined(kafka, node, member="zombie")
        assert values(await zombie.open()) == [b"a"]
        successor = await joined(kafka, node, member="successor")
        assert values(await successor.open(wait_ms=20_000)) == [b"a"]
        for kind in (ACCEPT, RELEASE, REJECT):
            assert await zombie.codes(Said(0, 0, [kind])) == [INVALID_RECORD_STATE]
        assert node.queue.committed("g", "orders", 0) == 0
        assert await successor.codes(Said(0, 0, [ACCEPT])) == [0]

    with_kafka(main)


def test_trap_19_delays_come_to_share_members_of_their_own_partition_once_and_cancelled_ones_never() -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node, partition_count=2)
            for value in (b"cancelled", b"kept"):
                ids = [await later(node, value, 60, partition=index) for index in (0, 1)]
                assert ids[0] == ids[1]
                if value == b"cancelled":
                    for index in (0, 1):
                        await node.scheduler.cancel("orders", index, ids[index])

        async def second(node: Node) -> None:
            one = await joined(Kafka(node), node)
            assert await one.open(0, 1, wait_ms=10_000) == []
            await asyncio.sleep(30)
            await one.heartbeat(one.member_epoch)
            await asyncio.sleep(30)
            await one.heartbeat(one.member_epoch)
            found = await one.fetch()
            assert sorted(found) == [Got(0, 0, b"kept", 1), Got(1, 0, b"kept", 1)]
            assert await one.fetch(*accepted(found), wait_ms=30_000) == []

        await world.live(first, end=End.KILL)
        await world.live(second)

    simulate(main)
