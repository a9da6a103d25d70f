"""ShareFetch and ShareAcknowledge as a client of a share group sees them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs
from tests.support.kafka_calls import Kafka, with_kafka
from tests.support.nodes import CONFIG, End, World, create, publish, simulate
from tests.support.share_calls import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Got,
    Said,
    ShareMember,
    records,
)

from goqueue.log.batch import read_header
from goqueue.model.acks import Acks
from goqueue.node.config import NodeConfig, QueueConfig
from goqueue.node.node import Node

INVALID_RECORD_STATE, INVALID_REQUEST, UNKNOWN_MEMBER_ID = 121, 42, 25
UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_GROUP_ID = 3, 100, 24


async def ready(
    kafka: Kafka, node: Node, *values: bytes, partition_count: int = 1, **settings: str
) -> ShareMember:
    """A topic with these records in its first partition, and a member of a group that reads it from the beginning."""
    await create(node, partition_count=partition_count, **settings)
    await node.groups.configure("g", {"share.auto.offset.reset": "earliest"})
    if values:
        await publish(node, *values)
    return await joined(kafka, node)


async def joined(kafka: Kafka, node: Node, member: str = "m", **options: Any) -> ShareMember:
    one = ShareMember(kafka, node, member=member, **options)
    await one.join()
    return one


def values(got: list[Got]) -> list[bytes | None]:
    return [one.value for one in got]


# -------------------------------------------------------------------- getting


@pytest.mark.parametrize("version", [1, 2])
def test_a_member_gets_records_once_and_an_accept_ends_it(version: int) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await ready(kafka, node, b"a", b"b", b"c")
        one = await joined(kafka, node, "one", version=version)
        assert await one.open() == [Got(0, 0, b"a", 1), Got(0, 1, b"b", 1), Got(0, 2, b"c", 1)]
        other = await joined(kafka, node, "other")
        assert await other.open() == []
        assert await one.codes(Said(0, 2, [ACCEPT])) == [0]
        assert node.queue.committed("g", "orders", 0) == 3
        await asyncio.sleep(35)
        assert await other.fetch() == []

    with_kafka(main)


def test_what_is_said_in_a_fetch_counts_before_it_fetches() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a", b"b", b"c", b"d")
        assert values(await one.open(limit=2)) == [b"a", b"b"]
        assert values(await one.fetch(Said(0, 1, [ACCEPT]), limit=2)) == [b"c", b"d"]
        assert node.queue.committed("g", "orders", 0) == 2

    with_kafka(main)


def test_whole_batches_come_with_the_records_that_are_the_members() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, *[b"%d" % index for index in range(10)])
        await publish(node, b"next")
        assert values(await one.open(limit=4)) == [b"0", b"1", b"2", b"3"]
        answer = await one.ask(limit=4)
        (part,) = answer.responses[0].partitions
        assert [(run.first_offset, run.last_offset) for run in part.acquired_records] == [(4, 7)]
        header = read_header(bytes(part.records))
        assert (header.base_offset, header.record_count) == (0, 10)
        assert len(part.records) == header.size
        last = await one.ask(limit=10)
        assert [got.offset for got in records(last)] == [8, 9, 10]

    with_kafka(main)


def test_a_new_group_begins_at_the_end_and_misses_nothing_after_it() -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            await create(node)
            await publish(node, b"before")
            one = await joined(Kafka(node), node)
            assert await one.open() == []
            await publish(node, b"after")

        async def second(node: Node) -> None:
            one = await joined(Kafka(node), node, "other")
            assert values(await one.open()) == [b"after"]

        await world.live(first, end=End.POWER_CUT)
        await world.live(second)

    simulate(main)


def test_a_waiting_fetch_wakes_when_a_record_comes() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, partition_count=2)
        waiting = asyncio.create_task(one.open(0, 1, wait_ms=20_000))
        await asyncio.sleep(1)
        assert not waiting.done()
        await publish(node, b"a", partition=1)
        assert await waiting == [Got(1, 0, b"a", 1)]

    with_kafka(main)


def test_a_waiting_fetch_wakes_when_a_lease_is_over() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a", visibility_ms="5000", retry_backoff_ms="1000")
        assert values(await one.open()) == [b"a"]
        other = await joined(kafka, node, "other")
        began = asyncio.get_running_loop().time()
        assert await other.open(wait_ms=25_000) == [Got(0, 0, b"a", 2)]
        assert 5.9 < asyncio.get_running_loop().time() - began < 7

    with_kafka(main)


def test_a_fetch_that_waits_in_vain_ends_in_time_and_says_nothing() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node)
        await one.open()
        began = asyncio.get_running_loop().time()
        answer = await one.ask(wait_ms=500)
        assert not answer.responses
        assert 0.45 < asyncio.get_running_loop().time() - began < 0.7

    with_kafka(main)


def test_nobody_waits_with_a_minimum_of_nothing_or_without_wanting_records() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node)
        await one.open()
        began = asyncio.get_running_loop().time()
        assert await one.fetch(limit=0, wait_ms=20_000) == []
        assert await one.fetch(bytes_max=0, wait_ms=20_000) == []
        assert asyncio.get_running_loop().time() - began < 0.5

    with_kafka(main)


def test_every_partition_gets_its_turn() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, partition_count=3)
        for partition in range(3):
            await publish(node, *[b"x"] * 5, partition=partition)
        found = await one.open(0, 1, 2, limit=1)
        for _ in range(5):
            found += await one.fetch(limit=1)
        assert sorted(got.partition for got in found) == [0, 0, 1, 1, 2, 2]

    with_kafka(main)


def test_a_member_gets_no_more_than_it_may_hold() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, *[b"x"] * 30)
        assert len(await one.open(limit=100)) == 20
        assert await one.fetch() == []
        assert len(await one.fetch(Said(0, 4, [ACCEPT]))) == 5

    with_kafka(main, config=_with_queue(QueueConfig(in_flight_count_max=20)))


def test_an_answer_is_as_large_as_the_client_wants_but_holds_one_record_at_least() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node)
        for index in range(20):
            await publish(node, b"%02d" % index * 5_000)  # a batch each
        answer = await one.ask(partitions=[0], bytes_max=35_000)
        assert sum(len(part.records) for topic in answer.responses for part in topic.partitions) <= 35_000
        assert [got.offset for got in records(answer)] == [0, 1, 2]
        assert [got.offset for got in await one.fetch(bytes_max=1)] == [3]

    with_kafka(main)


def test_records_of_a_batch_that_is_sent_anyway_count_as_nothing() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, *[b"x" * 1_000] * 200)
        answer = await one.ask(partitions=[0], bytes_max=1_000)
        assert len(records(answer)) == 200

    with_kafka(main)


def test_records_that_come_back_by_the_hundred_do_not_outgrow_an_answer() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node)
        for _ in range(30):
            await publish(node, b"x" * 900_000, acks=Acks.LEADER)
        assert len(await one.open(limit=30)) == 30
        await one.say(Said(0, 29, [RELEASE]))
        answer = await one.ask(bytes_max=5_000_000)
        sizes = [len(part.records) for topic in answer.responses for part in topic.partitions]
        assert sum(sizes) <= 5_000_000
        assert {got.deliveries for got in records(answer)} == {2}

    with_kafka(main)


# -------------------------------------------------------------------- saying


def test_a_release_gives_the_record_to_another_at_once_with_a_higher_count() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a", b"b")
        await one.open()
        other = await joined(kafka, node, "other")
        waiting = asyncio.create_task(other.open(wait_ms=10_000))
        await asyncio.sleep(0.1)
        assert await one.codes(Said(1, 1, [RELEASE])) == [0]
        assert await waiting == [Got(0, 1, b"b", 2)]

    with_kafka(main)


def test_a_rejected_record_does_not_hold_the_committed_offset_back() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a", b"b")
        await one.open()
        assert await one.codes(Said(0, 1, [REJECT, ACCEPT])) == [0]
        assert node.queue.committed("g", "orders", 0) == 2

    with_kafka(main)


def test_a_renewal_lets_the_member_keep_it_longer() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a", b"b", visibility_ms="10000")
        await one.open()
        await asyncio.sleep(8)
        answer = await one.say(Said(0, 0, [RENEW]), is_renew_ack=True)
        assert answer.acquisition_lock_timeout_ms == 10_000
        await asyncio.sleep(8)
        assert await one.codes(Said(0, 0, [ACCEPT])) == [0]
        assert await one.codes(Said(1, 1, [ACCEPT])) == [INVALID_RECORD_STATE]

    with_kafka(main)


def test_a_gap_is_done_with() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a", b"b")
        await one.open()
        assert await one.codes(Said(0, 1, [GAP, ACCEPT])) == [0]
        assert node.queue.committed("g", "orders", 0) == 2

    with_kafka(main)


def test_what_is_said_of_a_partition_counts_as_a_whole_or_not_at_all() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a", b"b", b"c", partition_count=2)
        await publish(node, b"d", partition=1)
        await one.open(0, 1)
        await one.say(Said(1, 1, [ACCEPT]))
        said = (Said(0, 0, [ACCEPT]), Said(1, 1, [RELEASE]), Said(2, 2, [REJECT]))
        assert await one.codes(*said, Said(0, 0, [ACCEPT], partition=1)) == [INVALID_RECORD_STATE, 0]
        assert node.queue.committed("g", "orders", 0) == 0
        assert node.queue.committed("g", "orders", 1) == 1
        assert await one.codes(Said(0, 0, [ACCEPT]), Said(2, 2, [ACCEPT])) == [0]

    with_kafka(main)


def test_a_mistake_in_a_fetch_is_told_beside_the_records() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a", b"b")
        await one.open(limit=1)
        answer = await one.ask(Said(1, 1, [ACCEPT]))
        (part,) = answer.responses[0].partitions
        assert (part.error_code, part.acknowledge_error_code) == (0, INVALID_RECORD_STATE)
        assert "offset 1" in part.acknowledge_error_message
        assert [run.first_offset for run in part.acquired_records] == [1]

    with_kafka(main)


@pytest.mark.parametrize(
    "said",
    [
        Said(0, 0, [ACCEPT]),  # finished
        Said(1, 1, [ACCEPT]),  # another's
        Said(2, 2, [ACCEPT]),  # over
        Said(3, 3, [ACCEPT]),  # never given
        Said(0, 2**62, [ACCEPT]),  # nobody holds so many
        Said(99, 99, [RELEASE]),  # nobody's
    ],
)
def test_only_who_holds_a_record_may_speak_of_it(said: Said) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, *[b"x"] * 4, visibility_ms="10000")
        other = await joined(kafka, node, "other")
        await one.open(limit=3)
        await one.say(Said(0, 0, [ACCEPT]), Said(1, 1, [RELEASE]))
        await other.open(limit=1)
        await asyncio.sleep(0 if said.first == 1 else 11)
        assert await one.codes(said) == [INVALID_RECORD_STATE]

    with_kafka(main)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([Said(2, 1, [ACCEPT])], "offsets 2 to 1"),
        ([Said(-1, 1, [ACCEPT])], "offsets -1 to 1"),
        ([Said(0, 1, [ACCEPT]), Said(1, 2, [ACCEPT])], "in order and apart, from 2 on"),
        ([Said(0, 1, [])], "by 0 types"),
        ([Said(0, 2, [ACCEPT, ACCEPT])], "by 2 types"),
        ([Said(0, 1, [5])], "type 5"),
        ([Said(0, 1, [-1])], "type -1"),
        ([Said(0, 1, [RENEW])], "requests that say they renew"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(said: list[Said], words: str) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a", b"b", b"c")
        await one.open()
        answer = await one.say(*said)
        (part,) = answer.responses[0].partitions
        assert part.error_code == INVALID_REQUEST
        assert words in part.error_message
        assert await one.codes(Said(0, 2, [ACCEPT])) == [0]

    with_kafka(main)


def test_records_that_retention_took_are_not_spoken_of_any_more() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a", b"b", b"c")
        await one.open()
        await node.topics.delete_records("orders", 0, 2)
        assert await one.codes(Said(0, 2, [ACCEPT])) == [0]
        assert node.queue.committed("g", "orders", 0) == 3

    with_kafka(main)


def test_an_accept_that_was_answered_survives_a_power_cut() -> None:
    async def main(world: World) -> None:
        async def first(node: Node) -> None:
            kafka = Kafka(node)
            one = await ready(kafka, node, b"a", b"b", b"c")
            await one.open()
            assert await one.codes(Said(0, 1, [ACCEPT])) == [0]

        async def second(node: Node) -> None:
            assert node.queue.committed("g", "orders", 0) == 2
            one = await joined(Kafka(node), node, "other")
            assert await one.open(wait_ms=30_000) == []
            assert await one.fetch(wait_ms=30_000) == [Got(0, 2, b"c", 2)]

        await world.live(first, end=End.POWER_CUT)
        await world.live(second)

    simulate(main)


# -------------------------------------------------------------------- who may ask


def test_only_members_are_served() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await ready(kafka, node, b"a")
        stranger = ShareMember(kafka, node, member="stranger")
        answer = await stranger.ask(partitions=[0])
        assert answer.error_code == UNKNOWN_MEMBER_ID
        assert (await ShareMember(kafka, node, group="").ask(partitions=[0])).error_code == INVALID_GROUP_ID
        assert (await ShareMember(kafka, node, member="").ask(partitions=[0])).error_code == INVALID_REQUEST

    with_kafka(main)


def test_unknown_topics_and_partitions_are_refused_one_by_one() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a")
        await create(node, "doomed")
        answer = await one.ask(partitions=[0, 7])
        codes = {
            part.partition_index: part.error_code for topic in answer.responses for part in topic.partitions
        }
        assert codes == {0: 0, 7: UNKNOWN_TOPIC_OR_PARTITION}
        await one.ask(partitions=[0], topic="doomed")
        await one.ask(forgotten=[7])
        await node.topics.delete("doomed")
        answer = await one.ask(wait_ms=100)
        assert [part.error_code for topic in answer.responses for part in topic.partitions] == [
            UNKNOWN_TOPIC_ID
        ]

    with_kafka(main)


def test_an_unknown_acquire_mode_is_refused() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one = await ready(kafka, node, b"a")
        answer = await one.ask(partitions=[0], share_acquire_mode=2)
        assert answer.error_code == INVALID_REQUEST
        assert "share_acquire_mode is 2" in answer.error_message

    with_kafka(main)


def _with_queue(queue: QueueConfig) -> NodeConfig:
    return structs.replace(CONFIG, queue=queue)
