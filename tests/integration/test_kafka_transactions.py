"""Transactions of stock clients: all or nothing, fenced, timed out, and over a kill -9 of the broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker import Broker
from tests.support.kafka_admins import KafkaPythonAdmin, kafka_python
from tests.support.kafka_clients import (
    CLIENTS,
    HAS_KCAT,
    TIMEOUT_S,
    Confluent,
    Record,
    collect_sockets,
    confluent,
    new_name,
    new_topic,
    quiet_broker,
    until,
)
from tests.support.kafka_isolation import COMMITTED, UNCOMMITTED, ends, values
from tests.support.kafka_transactions import (
    TRANSACTIONAL,
    ConfluentTransactions,
    Fenced,
    KafkaPythonTransactions,
    Transactions,
)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # see collect_sockets
SHORT_MS = 8_000
Make = Callable[..., Transactions]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with quiet_broker(tmp_path_factory.mktemp("transactions")) as running:
        yield running


@pytest.fixture(autouse=True)
def _sockets_are_collected() -> Iterator[None]:
    yield
    collect_sockets()


@pytest.fixture(params=list(TRANSACTIONAL))
def make(request: pytest.FixtureRequest) -> Make:
    return TRANSACTIONAL[request.param]


def end(kafka: str, topic: str, isolation: str = UNCOMMITTED) -> int:
    """Of the only partition."""
    return ends(kafka, topic, isolation)[0]


def until_stable(kafka: str, topic: str, offset: int) -> None:
    until(lambda: end(kafka, topic, COMMITTED) == offset, f"everything before {offset} is decided")


def test_a_committed_transaction_counts_and_an_aborted_one_does_not(served: Broker, make: Make) -> None:
    topics = [new_topic(served), new_topic(served)]
    producer = make(served.kafka, new_name("tx"))
    for ending, value in (("commit", b"1"), ("abort", b"2"), ("commit", b"3")):
        producer.begin()
        for topic in topics:
            producer.send(topic, value)
        assert value not in values(served.kafka, topics[0])
        assert value in values(served.kafka, topics[0], UNCOMMITTED)
        if ending == "commit":
            producer.commit()
        else:
            producer.abort()
    producer.close()
    for topic in topics:
        until_stable(served.kafka, topic, 6)
        for name, client in CLIENTS.items():
            if name == "kcat" and not HAS_KCAT:
                continue
            reader = client(served.kafka)
            assert [row.value for row in reader.read(topic, {0: 6})] == [b"1", b"3"], name
            rows = reader.read(topic, {0: 6}, isolation=UNCOMMITTED)
            assert [row.value for row in rows] == [b"1", b"2", b"3"], name


def test_a_record_that_becomes_visible_late_reaches_a_consumer_that_waited(
    served: Broker, make: Make
) -> None:
    """Traps 2 and 30: the reader stood at the last stable offset, with other records behind it."""
    topic = new_topic(served)
    producer = make(served.kafka, new_name("tx"))
    producer.begin()
    producer.send(topic, b"in doubt")
    Confluent(served.kafka).send(topic, [Record(b"plain")])
    consumer = confluent.Consumer({"bootstrap.servers": served.kafka, "group.id": new_name("g")})
    found: list[bytes] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(message.value())

    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    reading = threading.Thread(target=read)
    reading.start()
    try:
        until(lambda: end(served.kafka, topic) == 2, "both records are in the log")
        assert end(served.kafka, topic, COMMITTED) == 0
        assert found == []
        producer.commit()
        until(lambda: len(found) == 2, "the waiting reader gets both")
    finally:
        stop.set()
        reading.join()
        consumer.close()
        producer.close()
    assert found == [b"in doubt", b"plain"]


def test_a_second_producer_of_the_same_id_fences_the_first(served: Broker, make: Make) -> None:
    """Trap 23: what the first had open is aborted, and it can neither send nor commit."""
    topic, id = new_topic(served), new_name("tx")
    first = make(served.kafka, id)
    first.begin()
    first.send(topic, b"of the first")
    second = make(served.kafka, id)
    with pytest.raises(Fenced):
        first.commit()
    second.begin()
    second.send(topic, b"of the second")
    second.commit()
    assert values(served.kafka, topic) == [b"of the second"]
    first.close()
    second.close()


def test_a_fenced_producer_cannot_send(served: Broker) -> None:
    topic, id = new_topic(served), new_name("tx")
    first = ConfluentTransactions(served.kafka, id)
    first.begin()
    first.send(topic, b"of the first")
    second = ConfluentTransactions(served.kafka, id)
    with pytest.raises(Fenced):
        first.send(topic, b"of a zombie")
    second.begin()
    second.send(topic, b"of the second")
    second.commit()
    assert values(served.kafka, topic, UNCOMMITTED) == [b"of the first", b"of the second"]


def test_a_transaction_that_takes_too_long_is_aborted_and_readers_go_on(served: Broker, make: Make) -> None:
    topic = new_topic(served)
    producer = make(served.kafka, new_name("tx"), SHORT_MS)
    producer.begin()
    producer.send(topic, b"too slow")
    Confluent(served.kafka).send(topic, [Record(b"behind it")])
    until(lambda: end(served.kafka, topic, COMMITTED) == 3, "the transaction is aborted")
    assert values(served.kafka, topic) == [b"behind it"]
    with pytest.raises(Fenced):
        producer.commit()
    producer.close()


def test_consume_transform_produce_moves_each_record_once(served: Broker, make: Make) -> None:
    source, sink, group, id = new_topic(served), new_topic(served), new_name("g"), new_name("tx")
    numbers = [b"%d" % at for at in range(20)]
    Confluent(served.kafka).send(source, [Record(number) for number in numbers])
    for start in (0, 10):
        producer = make(served.kafka, id)
        assert producer.transform(source, sink, group, 10) == numbers[start : start + 10]
        producer.close()
    until(lambda: values(served.kafka, sink) == numbers, "all that went in came out")


def test_offsets_of_an_aborted_transaction_do_not_count(served: Broker) -> None:
    topic, group = new_topic(served), new_name("g")
    Confluent(served.kafka).send(topic, [Record(b"0"), Record(b"1")])
    consumer = confluent.Consumer({"bootstrap.servers": served.kafka, "group.id": group})
    place = confluent.TopicPartition(topic, 0, 2)
    producer = ConfluentTransactions(served.kafka, new_name("tx"))
    for ending, expected in (("abort", confluent.OFFSET_INVALID), ("commit", 2)):
        producer.begin()
        metadata = consumer.consumer_group_metadata()
        producer.producer.send_offsets_to_transaction([place], metadata, TIMEOUT_S)
        if ending == "abort":
            producer.abort()
        else:
            producer.commit()
        asked = [confluent.TopicPartition(topic, 0)]

        def is_so(asked: list[Any] = asked, expected: int = expected) -> bool:
            return bool(consumer.committed(asked, timeout=TIMEOUT_S)[0].offset == expected)

        until(is_so, f"the offset after {ending}")
    consumer.close()


def test_open_transactions_survive_kill_9_as_open_and_then_time_out(tmp_path: Path) -> None:
    """Trap 25. And trap 7: what was acknowledged before the kill is there after it."""
    with Broker(tmp_path) as broker:
        kafka = broker.kafka
        topics = {name: new_topic(broker) for name in TRANSACTIONAL}
        producers = {name: make(kafka, name, 30_000) for name, make in TRANSACTIONAL.items()}
        for name, producer in producers.items():
            producer.begin()
            producer.send(topics[name], b"open")
        broker.kill9()
    with Broker(tmp_path, kafka=kafka):
        admin = KafkaPythonAdmin(kafka)
        (listed,) = admin.client.list_transactions().values()
        admin.close()
        assert {one.transactional_id: one.state.value for one in listed} == dict.fromkeys(topics, "Ongoing")
        for topic in topics.values():
            assert end(kafka, topic) == 1
            assert end(kafka, topic, COMMITTED) == 0
            assert values(kafka, topic, UNCOMMITTED) == [b"open"]
        for name, topic in topics.items():
            until(partial(has_ended, kafka, topic), f"the transaction of {name} times out", timeout_s=150)
            assert values(kafka, topic) == []
        for producer in producers.values():
            producer.close()


def has_ended(kafka: str, topic: str) -> bool:
    """Its one record and the marker behind it hold nobody up."""
    return end(kafka, topic, COMMITTED) == 2


def test_an_open_transaction_can_be_committed_after_kill_9(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        kafka = broker.kafka
        topic = new_topic(broker)
        producer = ConfluentTransactions(kafka, "survivor")
        producer.begin()
        producer.send(topic, b"before")
        broker.kill9()
    with Broker(tmp_path, kafka=kafka):
        producer.send(topic, b"after")
        producer.commit()
        until(lambda: values(kafka, topic) == [b"before", b"after"], "both are committed")


def test_admin_clients_see_transactions_and_producers(served: Broker) -> None:
    topic, id = new_topic(served), new_name("tx")
    producer = KafkaPythonTransactions(served.kafka, id)
    producer.begin()
    producer.send(topic, b"open")
    admin = KafkaPythonAdmin(served.kafka)
    listed = {one.transactional_id: one for ones in admin.client.list_transactions().values() for one in ones}
    assert listed[id].state.value == "Ongoing"
    place = kafka_python.TopicPartition(topic, 0)
    described = admin.client.describe_transactions([id])[id]
    assert described.state.value == "Ongoing"
    assert described.topic_partitions == {place}
    (active,) = admin.client.describe_producers([place])[place].active_producers
    assert (active.producer_id, active.current_transaction_start_offset) == (described.producer_id, 0)
    producer.commit()
    until(lambda: _state(admin, id) == "CompleteCommit", "the transaction is over")
    admin.close()
    producer.close()


def _state(admin: KafkaPythonAdmin, id: str) -> str:
    state: str = admin.client.describe_transactions([id])[id].state.value
    return state
