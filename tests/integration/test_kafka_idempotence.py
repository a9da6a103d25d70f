"""Idempotent producers of stock clients: connections are cut and the broker is killed while they send, and every record
is there once, in order."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from tests.support.broker import Broker
from tests.support.kafka_admins import kafka_python
from tests.support.kafka_clients import TIMEOUT_S, Confluent, collect_sockets, confluent, new_topic, until
from tests.support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # see collect_sockets
PARTITION_COUNT = 2
SEND_MAX = 200_000
UNDER_WAY_MAX = 200


@pytest.fixture(autouse=True)
def _sockets_are_collected() -> Iterator[None]:
    yield
    collect_sockets()


class Sending:
    """A producer that sends numbers from a thread until it is told to stop."""

    def __init__(self, send_all: Callable[[Sending], None]) -> None:
        self.stored_count = 0
        self.sent_count = 0
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(send_all,), daemon=True)
        self._thread.start()

    def numbers(self) -> itertools.takewhile[int]:
        return itertools.takewhile(lambda _: not self._stop.is_set(), range(SEND_MAX))

    def _run(self, send_all: Callable[[Sending], None]) -> None:
        try:
            send_all(self)
        except BaseException as error:  # noqa: BLE001 - the test sees it in `finish`
            self.failures.append(error)

    def until_stored(self, more: int) -> None:
        goal = self.stored_count + more
        until(lambda: self.stored_count >= goal or bool(self.failures), f"{more} more records are stored")
        assert self.failures == []

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "the producer does not end"
        assert self.failures == []
        assert self.stored_count == self.sent_count


def confluent_sends(kafka: str, topic: str) -> Callable[[Sending], None]:
    def run(sending: Sending) -> None:
        producer = confluent.Producer(
            {"bootstrap.servers": kafka, "enable.idempotence": True, "linger.ms": 1, "log_level": 0}
        )

        def on_delivery(error: Any, _: Any) -> None:
            if error is not None:
                raise confluent.KafkaException(error)
            sending.stored_count += 1

        for number in sending.numbers():
            producer.produce(
                topic, b"%d" % number, partition=number % PARTITION_COUNT, on_delivery=on_delivery
            )
            sending.sent_count += 1
            producer.poll(0)
            while sending.sent_count - sending.stored_count >= UNDER_WAY_MAX:
                producer.poll(0.01)
        assert producer.flush(TIMEOUT_S) == 0

    return run


def kafka_python_sends(kafka: str, topic: str) -> Callable[[Sending], None]:
    def run(sending: Sending) -> None:
        # Its defaults: idempotent, acks=all, retries without end.
        producer = kafka_python.KafkaProducer(bootstrap_servers=kafka)

        def on_stored(_: Any) -> None:
            sending.stored_count += 1

        try:
            for number in sending.numbers():
                future = producer.send(topic, b"%d" % number, partition=number % PARTITION_COUNT)
                future.add_callback(on_stored)
                future.add_errback(sending.failures.append)
                sending.sent_count += 1
                if number % 20 == 0:
                    future.get(timeout=TIMEOUT_S)
            producer.flush(timeout=TIMEOUT_S)
        finally:
            producer.close()

    return run


def aiokafka_sends(kafka: str, topic: str) -> Callable[[Sending], None]:
    async def main(sending: Sending) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=kafka, enable_idempotence=True)
        await producer.start()
        try:
            numbers = sending.numbers()
            while batch := list(itertools.islice(numbers, 20)):
                futures = [
                    await producer.send(topic, b"%d" % number, partition=number % PARTITION_COUNT)
                    for number in batch
                ]
                sending.sent_count += len(batch)
                async with asyncio.timeout(TIMEOUT_S):
                    await asyncio.gather(*futures)
                sending.stored_count += len(batch)
        finally:
            await producer.stop()

    return lambda sending: asyncio.run(main(sending))


PRODUCERS = {
    "confluent": confluent_sends,
    "kafka-python": kafka_python_sends,
    "aiokafka": aiokafka_sends,
}


def check_each_once(kafka: str, topic: str, count: int) -> None:
    expected: dict[int, list[int]] = defaultdict(list)
    for number in range(count):
        expected[number % PARTITION_COUNT].append(number)
    consumer = confluent.Consumer({"bootstrap.servers": kafka, "group.id": "ends"})
    ends = {
        index: consumer.get_watermark_offsets(confluent.TopicPartition(topic, index), timeout=TIMEOUT_S)[1]
        for index in range(PARTITION_COUNT)
    }
    consumer.close()
    found: dict[int, list[int]] = defaultdict(list)
    for row in Confluent(kafka).read(topic, ends):
        found[row.partition].append(int(row.value or b"-1"))
    assert found == expected


@pytest.mark.parametrize("sends", PRODUCERS.values(), ids=PRODUCERS)
def test_cut_connections_neither_lose_nor_repeat_a_record(
    tmp_path: Path, sends: Callable[[str, str], Callable[[Sending], None]]
) -> None:
    with TcpProxy() as proxy, Broker(tmp_path, env={"GOQUEUE_KAFKA_ADVERTISED": proxy.address}) as broker:
        proxy.point_at(broker.kafka)
        topic = new_topic(broker, partitions=PARTITION_COUNT)
        sending = Sending(sends(proxy.address, topic))
        for _ in range(5):
            sending.until_stored(60)
            until(lambda: proxy.cut() > 0, "there is a connection to cut")
        sending.until_stored(60)
        sending.finish()
        check_each_once(proxy.address, topic, sending.sent_count)


@pytest.mark.parametrize("sends", PRODUCERS.values(), ids=PRODUCERS)
def test_kill_9_of_the_broker_neither_loses_nor_repeats_a_record(
    tmp_path: Path, sends: Callable[[str, str], Callable[[Sending], None]]
) -> None:
    with Broker(tmp_path) as broker:
        kafka = broker.kafka
        topic = new_topic(broker, partitions=PARTITION_COUNT)
        sending = Sending(sends(kafka, topic))
        sending.until_stored(100)
        broker.kill9()
    with Broker(tmp_path, kafka=kafka):
        sending.until_stored(100)
        sending.finish()
        check_each_once(kafka, topic, sending.sent_count)
