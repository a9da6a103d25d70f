"""Transactional producers of three libraries behind one face, so that each test runs with all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from tests.support.kafka_admins import kafka_python
from tests.support.kafka_clients import TIMEOUT_S, confluent


class Fenced(Exception):
    """The producer may not go on: another has its transactional id, or its transaction is over."""


class Transactions(Protocol):
    """A transactional producer, its id claimed by the constructor."""

    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        """Sent and answered: it is in the log."""

    def transform(self, source: str, sink: str, group: str, count: int) -> list[bytes]:
        """One transaction: read so many as this group, write them, commit where the group is."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentTransactions:
    def __init__(self, kafka: str, id: str, timeout_ms: int = 60_000) -> None:
        self._kafka = kafka
        self.producer = confluent.Producer(
            {
                "bootstrap.servers": kafka,
                "transactional.id": id,
                "transaction.timeout.ms": timeout_ms,
                "error_cb": lambda _: (
                    None
                ),  # without one, being fenced raises in the middle of other callbacks
                "log_level": 0,
            }
        )
        self._try(lambda: self.producer.init_transactions(TIMEOUT_S))

    def begin(self) -> None:
        self._try(self.producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        errors: list[Any] = []
        self._try(
            lambda: self.producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error)
            )
        )
        self._try(lambda: self.producer.flush(TIMEOUT_S))
        if errors != [None]:
            raise Fenced(str(errors))

    def transform(self, source: str, sink: str, group: str, count: int) -> list[bytes]:
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": self._kafka,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        try:
            consumer.subscribe([source])
            values = [one.value() for one in consumer.consume(count, TIMEOUT_S)]
            self.begin()
            for value in values:
                self.producer.produce(sink, value)
            places = consumer.position(consumer.assignment())
            self.producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), TIMEOUT_S)
            self.commit()
            return values
        finally:
            consumer.close()

    def commit(self) -> None:
        self._try(lambda: self.producer.commit_transaction(TIMEOUT_S))

    def abort(self) -> None:
        self._try(lambda: self.producer.abort_transaction(TIMEOUT_S))

    def close(self) -> None:
        """It has no end of its own."""

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (
            confluent.KafkaException,
            SystemError,
        ) as error:  # the second around the first, out of a callback
            raise Fenced(repr(error.__cause__ or error)) from error


class KafkaPythonTransactions:
    def __init__(self, kafka: str, id: str, timeout_ms: int = 60_000) -> None:
        self._kafka = kafka
        self.producer = kafka_python.KafkaProducer(
            bootstrap_servers=kafka, transactional_id=id, transaction_timeout_ms=timeout_ms
        )
        self._try(self.producer.init_transactions)

    def begin(self) -> None:
        self._try(self.producer.begin_transaction)

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._try(lambda: self.producer.send(topic, value=value, partition=partition).get(timeout=TIMEOUT_S))

    def transform(self, source: str, sink: str, group: str, count: int) -> list[bytes]:
        consumer = kafka_python.KafkaConsumer(
            source,
            bootstrap_servers=self._kafka,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        try:
            values: list[bytes] = []
            while len(values) < count:
                found = consumer.poll(timeout_ms=200, max_records=count - len(values))
                values += [one.value for batch in found.values() for one in batch]
            self.begin()
            for value in values:
                self.producer.send(sink, value)
            places = {
                place: kafka_python.structs.OffsetAndMetadata(consumer.position(place), "", -1)
                for place in consumer.assignment()
            }
            self.producer.send_offsets_to_transaction(places, consumer.group_metadata())
            self.commit()
            return values
        finally:
            consumer.close()

    def commit(self) -> None:
        self._try(self.producer.commit_transaction)

    def abort(self) -> None:
        self._try(self.producer.abort_transaction)

    def close(self) -> None:
        self.producer.close(timeout=1)

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except kafka_python.errors.KafkaError as error:
            raise Fenced(repr(error)) from error


class AioTransactions:
    def __init__(self, kafka: str, id: str, timeout_ms: int = 60_000) -> None:
        self._kafka = kafka
        self._runner = asyncio.Runner()
        self.producer: Any = None  # it has no types, and wants to be made where its loop runs
        self._run(self._start(kafka, id, timeout_ms))

    async def _start(self, kafka: str, id: str, timeout_ms: int) -> None:
        self.producer = AIOKafkaProducer(
            bootstrap_servers=kafka, transactional_id=id, transaction_timeout_ms=timeout_ms
        )
        await self.producer.start()

    def begin(self) -> None:
        self._run(self.producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._run(self.producer.send_and_wait(topic, value, partition=partition))

    def transform(self, source: str, sink: str, group: str, count: int) -> list[bytes]:
        async def work() -> list[bytes]:
            consumer = AIOKafkaConsumer(
                source,
                bootstrap_servers=self._kafka,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            async with consumer:
                values = [(await consumer.getone()).value for _ in range(count)]
                places = {place: await consumer.position(place) for place in consumer.assignment()}
                async with self.producer.transaction():
                    for value in values:
                        await self.producer.send(sink, value)
                    await self.producer.send_offsets_to_transaction(places, group)
                assert all(isinstance(place, AioPartition) for place in places)
                return values

        found: list[bytes] = self._run(work())
        return found

    def commit(self) -> None:
        self._run(self.producer.commit_transaction())

    def abort(self) -> None:
        self._run(self.producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self.producer.stop())
        except Fenced:
            pass  # it wants to end its transaction first, which is no longer its own
        self._runner.close()

    def _run(self, work: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(TIMEOUT_S):
                return await work

        try:
            return self._runner.run(bounded())
        except AioError as error:
            raise Fenced(repr(error)) from error


TRANSACTIONAL: dict[str, Callable[..., Transactions]] = {
    "confluent": ConfluentTransactions,
    "kafka-python": KafkaPythonTransactions,
    "aiokafka": AioTransactions,
}
