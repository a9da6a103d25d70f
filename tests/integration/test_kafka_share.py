"""Share groups as librdkafka's share consumer (confluent-kafka) uses them, against a real broker."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker import Broker
from tests.support.kafka_clients import (
    TIMEOUT_S,
    Confluent,
    Record,
    confluent,
    new_name,
    new_topic,
    quiet_broker,
)
from tests.support.share_consumers import (
    ACCEPT,
    REJECT,
    RELEASE,
    commit,
    configure,
    member,
    new_group,
    send,
    take,
    values,
)

# A consumer that takes what there is and never says what becomes of it.
HOLDER = """
import sys, time, confluent_kafka
consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]})
consumer.subscribe([sys.argv[3]])
count = 0
while count < int(sys.argv[4]):
    count += len(consumer.poll(1.0))
print("holds", count, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with quiet_broker(tmp_path_factory.mktemp("share")) as running:
        yield running


# -------------------------------------------------------------------- acknowledging


def test_a_consumer_receives_and_its_next_poll_acknowledges(served: Broker) -> None:
    topic, group = new_topic(served, partitions=2), new_group(served.kafka)
    first = send(served, topic, *[f"a{index}" for index in range(100)])
    second = send(served, topic, *[f"b{index}" for index in range(100)], partition=1)
    with member(served.kafka, group, topic) as consumer:
        found = take(consumer, 200)
        assert sorted(values(found)) == sorted(first + second)
        assert {one.delivery_count() for one in found} == {1}
        assert not consumer.poll(0.2)  # closing acknowledges nothing that was not spoken of
    (last,) = send(served, topic, "last")
    with member(served.kafka, group, topic) as consumer:
        assert values(take(consumer, 1)) == [last]


def test_a_consumer_says_of_each_record_what_becomes_of_it(served: Broker) -> None:
    topic, group = new_topic(served), new_group(served.kafka)
    send(served, topic, "a", "b", "c")
    with member(served.kafka, group, topic, is_explicit=True) as consumer:
        a, b, c = take(consumer, 3)
        consumer.acknowledge(a, ACCEPT)
        consumer.acknowledge(b, RELEASE)
        consumer.acknowledge(c, ACCEPT)
        commit(consumer)
        (again,) = take(consumer, 1, says=ACCEPT)
        assert (again.value(), again.delivery_count()) == (b"b", 2)
        commit(consumer)
        send(served, topic, "d")
        assert values(take(consumer, 1, says=ACCEPT)) == [b"d"]


def test_a_consumers_last_words_count_though_it_leaves_its_group_at_the_same_time(served: Broker) -> None:
    topic, group = new_topic(served), new_group(served.kafka)
    for index in range(5):
        (sent,) = send(served, topic, f"{index}")
        with member(served.kafka, group, topic, is_explicit=True) as consumer:
            (found,) = take(consumer, 1, says=ACCEPT)
        assert (found.value(), found.delivery_count()) == (sent, 1)


def test_a_rejected_record_is_a_dead_letter(served: Broker) -> None:
    topic, group = new_topic(served), new_group(served.kafka)
    send(served, topic, "bad", "good")
    with member(served.kafka, group, topic, is_explicit=True) as consumer:
        bad, good = take(consumer, 2)
        consumer.acknowledge(bad, REJECT)
        consumer.acknowledge(good, ACCEPT)
        commit(consumer)
        send(served, topic, "next")
        assert values(take(consumer, 1, says=ACCEPT)) == [b"next"]
    with member(served.kafka, new_group(served.kafka), f"{topic}.dlq") as consumer:
        (letter,) = take(consumer, 1)
        assert letter.value() == b"bad"


def test_a_record_that_is_released_too_often_is_a_dead_letter(served: Broker) -> None:
    topic, group = new_topic(served, max_retries="2"), new_group(served.kafka)
    send(served, topic, "bad")
    with member(served.kafka, group, topic, is_explicit=True) as consumer:
        counts = [take(consumer, 1, says=RELEASE)[0].delivery_count() for _ in range(3)]
        assert counts == [1, 2, 3]
        commit(consumer)
    with member(served.kafka, new_group(served.kafka), f"{topic}.dlq") as consumer:
        assert values(take(consumer, 1)) == [b"bad"]


def test_what_a_consumer_does_not_speak_of_in_time_comes_again(served: Broker) -> None:
    topic = new_topic(served)
    group = new_group(served.kafka, visibility_ms="1000", retry_backoff_ms="10")
    send(served, topic, "a")
    with member(served.kafka, group, topic, is_explicit=True) as slow:
        (held,) = take(slow, 1)
        configure(served.kafka, group, visibility_ms="600000")  # the other has all the time that it needs
        with member(served.kafka, group, topic, is_explicit=True) as other:
            (again,) = take(other, 1, says=ACCEPT)
            assert again.delivery_count() == 2
            commit(other)
        slow.acknowledge(held, ACCEPT)
        (refused,) = slow.commit_sync(TIMEOUT_S).values()
        assert refused.args[0].name() == "INVALID_RECORD_STATE"


# -------------------------------------------------------------------- several consumers


def test_consumers_of_a_group_compete_and_no_record_goes_to_two(served: Broker) -> None:
    topic, group = new_topic(served), new_group(served.kafka)
    with member(served.kafka, group, topic) as one, member(served.kafka, group, topic) as two:
        sent = [
            value for part in range(20) for value in send(served, topic, *[f"{part}-{i}" for i in range(50)])
        ]
        found: dict[Any, list[bytes]] = {one: [], two: []}
        deadline = time.monotonic() + TIMEOUT_S
        while sum(map(len, found.values())) < len(sent):
            assert time.monotonic() < deadline, {name: len(got) for name, got in found.items()}
            for consumer in (one, two):
                found[consumer] += values(consumer.poll(0.05))
        assert all(found.values())
        assert sorted(found[one] + found[two]) == sorted(sent)


def test_a_share_group_and_a_consumer_group_get_everything_each(served: Broker) -> None:
    topic, group = new_topic(served, partitions=2), new_group(served.kafka)
    sent = [*send(served, topic, "a", "b"), *send(served, topic, "c", partition=1)]
    with member(served.kafka, group, topic) as consumer:
        assert sorted(values(take(consumer, 3))) == sent
    plain = confluent.Consumer(
        {"bootstrap.servers": served.kafka, "group.id": new_name("g"), "auto.offset.reset": "earliest"}
    )
    try:
        plain.subscribe([topic])
        assert sorted(values(plain.consume(3, TIMEOUT_S))) == sent
    finally:
        plain.close()


def test_what_a_killed_consumer_held_goes_to_others_at_once(served: Broker) -> None:
    topic, group = new_topic(served), new_group(served.kafka, visibility_ms="600000")
    sent = send(served, topic, "a", "b", "c")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, served.kafka, group, topic, "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds 3\n"
    finally:
        holder.kill()
        holder.communicate()
    with member(served.kafka, group, topic) as consumer:
        found = take(consumer, 3)
        assert values(found) == sent
        assert {one.delivery_count() for one in found} == {2}


def test_records_of_every_priority_and_codec_arrive(served: Broker) -> None:
    topic, group = new_topic(served), new_group(served.kafka)
    wanted = set[bytes]()
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        records = [
            Record(f"{codec}-{priority}".encode(), headers=(("gq-priority", str(priority).encode()),))
            for priority in range(5)
        ]
        Confluent(served.kafka).send(topic, records, codec=codec)
        wanted |= {one.value or b"" for one in records}
    with member(served.kafka, group, topic, max_poll_records="3") as consumer:
        assert set(values(take(consumer, 25))) == wanted


# -------------------------------------------------------------------- the broker dies


def test_kill_9_loses_no_acknowledgement(tmp_path: Path) -> None:
    settings = {"visibility_ms": "600000", "retry_backoff_ms": "10"}
    with Broker(tmp_path) as first:
        topic, group = new_topic(first), new_group(first.kafka, **settings)
        send(first, topic, *[f"{index:02}" for index in range(30)])
        address = first.kafka
        with member(address, group, topic, is_explicit=True) as consumer:
            take(consumer, 30, says=ACCEPT)
            commit(consumer)
            # Only what nobody speaks of is held for a short time.
            configure(address, group, visibility_ms="1000")
            sent = send(first, topic, *[f"{index:02}" for index in range(30, 40)])
            held = take(consumer, 10)
            configure(address, group, visibility_ms="600000")
            first.kill9()
            with Broker(tmp_path, kafka=address) as second:
                for one in held:
                    consumer.acknowledge(one, RELEASE)
                with member(address, group, topic) as other:
                    again = take(other, 10)
                    commit(other)
                assert values(again) == sent
                assert {one.delivery_count() for one in again} == {2}
                send(second, topic, "last")
                with member(address, group, topic) as other:
                    assert values(take(other, 1)) == [b"last"]
