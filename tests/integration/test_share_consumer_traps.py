"""The traps of the specification that a stock Kafka share consumer can fall into, against a real broker.

Those that need minutes or many records are in virtual time: `tests/unit/api/kafka/test_share_member_traps.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker import Broker
from tests.support.kafka_clients import Confluent, Record, new_name, new_topic, quiet_broker
from tests.support.kafka_transactions import ConfluentTransactions
from tests.support.rest_queue import call
from tests.support.share_consumers import (
    ACCEPT,
    REJECT,
    commit,
    member,
    new_group,
    send,
    take,
    values,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with quiet_broker(tmp_path_factory.mktemp("share")) as running:
        yield running


def due_at(time_s: float) -> tuple[tuple[str, bytes], ...]:
    return (("gq-deliver-at", b"%d" % int(time_s * 1_000)),)


def committed(broker: Broker, group: str) -> int:
    (place,) = call(broker, "GET", f"/reliability/stats?group={group}").body["groups"]
    offset: int = place["committed_offset"]
    return offset


@pytest.mark.parametrize("limit", ["1", "3", "500"])
def test_trap_1_interleaved_priorities_all_reach_a_share_consumer(served: Broker, limit: str) -> None:
    topic, group = new_topic(served), new_group(served.kafka)
    priorities = [2, 2, 0, 4, 2, 1, 2, 2]
    records = [
        Record(b"%d" % at, headers=(("gq-priority", b"%d" % one),)) for at, one in enumerate(priorities)
    ]
    Confluent(served.kafka).send(topic, records)
    with member(served.kafka, group, topic, is_explicit=True, max_poll_records=limit) as consumer:
        found = take(consumer, 8, says=ACCEPT)
        commit(consumer)
    assert sorted(one.offset() for one in found) == list(range(8))
    assert {one.delivery_count() for one in found} == {1}
    assert committed(served, group) == 8


def test_trap_2_a_delayed_record_reaches_a_share_consumer_that_has_read_past_it(served: Broker) -> None:
    topic, group = new_topic(served), new_group(served.kafka)
    due_s = time.time() + 2
    Confluent(served.kafka).send(topic, [Record(b"delayed", headers=due_at(due_s)), Record(b"at once")])
    with member(served.kafka, group, topic) as consumer:
        found = values(take(consumer, 1))
        assert (
            found == [b"at once"] or time.time() >= due_s
        )  # later only where the machine was busy otherwise
        found += values(take(consumer, 2 - len(found)))
    assert sorted(found) == [b"at once", b"delayed"]


def test_trap_2_an_uncommitted_record_comes_to_a_share_consumer_once_it_is_committed(served: Broker) -> None:
    topic, group = new_topic(served), new_group(served.kafka)
    transactions = ConfluentTransactions(served.kafka, new_name("app"))
    send(served, topic, "before")
    transactions.begin()
    transactions.send(topic, b"in doubt")
    send(served, topic, "after")
    with member(served.kafka, group, topic) as consumer:
        assert values(take(consumer, 1)) == [b"before"]
        assert values(consumer.poll(0.5)) == []
        transactions.commit()
        assert values(take(consumer, 2)) == [b"in doubt", b"after"]


def test_trap_12_two_share_groups_both_get_every_record(served: Broker) -> None:
    topic = new_topic(served, partitions=2)
    sent = sorted([*send(served, topic, "a", "b"), *send(served, topic, "c", "d", partition=1)])
    for _ in range(2):
        with member(served.kafka, new_group(served.kafka), topic) as consumer:
            assert sorted(values(take(consumer, 4))) == sent


def test_trap_14_a_record_that_one_consumer_keeps_does_not_stop_its_partition(served: Broker) -> None:
    topic, group = new_topic(served), new_group(served.kafka, visibility_ms="600000")
    send(served, topic, "slow")
    with member(served.kafka, group, topic, is_explicit=True) as slow:
        (held,) = take(slow, 1)
        with member(served.kafka, group, topic, is_explicit=True) as quick:
            for step in range(5):
                sent = send(served, topic, *[f"{step}-{at}" for at in range(100)])
                assert sorted(values(take(quick, 100, says=ACCEPT))) == sorted(sent)
                commit(quick)
                assert committed(served, group) == 0
        slow.acknowledge(held, ACCEPT)
        commit(slow)
    assert committed(served, group) == 501


def test_trap_15_a_rejected_record_does_not_hold_the_committed_offset_back(served: Broker) -> None:
    topic, group = new_topic(served), new_group(served.kafka)
    send(served, topic, "bad", "good")
    with member(served.kafka, group, topic, is_explicit=True) as consumer:
        bad, good = take(consumer, 2)
        consumer.acknowledge(bad, REJECT)
        consumer.acknowledge(good, ACCEPT)
        commit(consumer)
    assert committed(served, group) == 2


def test_trap_16_an_idle_share_consumer_waits_in_vain_and_then_goes_on(served: Broker) -> None:
    topic, group = new_topic(served), new_group(served.kafka)
    with member(served.kafka, group, topic) as consumer:
        assert values(consumer.poll(3.0)) == []
        sent = send(served, topic, "a")
        assert values(take(consumer, 1)) == sent


def test_trap_17_a_share_consumer_of_three_topics_gets_all_three(served: Broker) -> None:
    topics = [new_topic(served) for _ in range(3)]
    group = new_group(served.kafka)
    with member(served.kafka, group, *topics) as consumer:
        for text in ("a", "b"):
            for topic in topics:
                send(served, topic, f"{topic} {text}")
            found = take(consumer, 3)
            assert sorted(values(found)) == sorted(f"{topic} {text}".encode() for topic in topics)


def half_cancelled(broker: Broker, delay_s: float) -> str | None:
    """A topic with two delayed records in each of two partitions, the first of each cancelled; None if they were due before
    that was done."""
    topic, due_s = new_topic(broker, partitions=2), time.time() + delay_s
    for value in (b"cancelled", b"kept"):
        records = [Record(b"%s %d" % (value, at), headers=due_at(due_s), partition=at) for at in (0, 1)]
        Confluent(broker.kafka).send(topic, records)
    listed = call(broker, "GET", f"/topics/{topic}/delayed").body["messages"]
    gone = [call(broker, "DELETE", f"/topics/{topic}/delayed/{partition}/0").status for partition in (0, 1)]
    places = sorted((one["partition"], one["offset"]) for one in listed)
    # The same offsets in both partitions.
    is_right = (places, gone) == ([(0, 0), (0, 1), (1, 0), (1, 1)], [200, 200])
    assert is_right or time.time() >= due_s, (places, gone)
    return topic if is_right else None


def test_trap_19_delays_of_two_partitions_survive_kill_9_and_cancelled_ones_never_come(
    tmp_path: Path,
) -> None:
    with Broker(tmp_path) as broker:
        group = new_group(broker.kafka)
        topic = next(filter(None, (half_cancelled(broker, delay_s) for delay_s in (5, 20, 80))))
        broker.kill9()
    with Broker(tmp_path) as broker, member(broker.kafka, group, topic) as consumer:
        found = take(consumer, 2)
        assert sorted((one.partition(), one.value()) for one in found) == [(0, b"kept 0"), (1, b"kept 1")]
        assert values(consumer.poll(1.0)) == []
