"""The admin clients of three Kafka libraries behind one face, so that each test runs with all of them."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import confluent_kafka
import confluent_kafka.admin
from aiokafka import admin as aio
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.errors import BrokerResponseError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of kafka-python's own
    import kafka.admin
    import kafka.errors

confluent: Any = confluent_kafka.admin  # it exports in a way that mypy does not follow
kafka_python: Any = kafka  # it has no types
TIMEOUT_S = 60.0
TIMEOUT_MS = int(TIMEOUT_S * 1_000)


class Refused(Exception):
    """The broker answered with an error; `code` is Kafka's number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Setting(NamedTuple):
    value: str
    source: int


class Admin(Protocol):
    """`change` sets one more setting or replaces all: which of them is the library's choice."""

    def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None: ...

    def delete(self, topic: str) -> None: ...

    def grow(self, topic: str, partitions: int) -> None: ...

    def change(self, topic: str, settings: Mapping[str, str]) -> None: ...

    def settings(self, topic: str) -> dict[str, Setting]: ...

    def broker_settings(self) -> dict[str, Setting]: ...

    def partition_count(self, topic: str) -> int: ...

    def close(self) -> None: ...


class ConfluentAdmin:
    def __init__(self, address: str) -> None:
        self.client = confluent.AdminClient({"bootstrap.servers": address})

    def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        new = confluent.NewTopic(topic, partitions, replicas, config=dict(settings or {}))
        self._one(self.client.create_topics([new], validate_only=validate_only, operation_timeout=TIMEOUT_S))

    def delete(self, topic: str) -> None:
        self._one(self.client.delete_topics([topic], operation_timeout=TIMEOUT_S))

    def grow(self, topic: str, partitions: int) -> None:
        self._one(self.client.create_partitions([confluent.NewPartitions(topic, partitions)]))

    def change(self, topic: str, settings: Mapping[str, str]) -> None:
        steps = [
            confluent.ConfigEntry(name, text, incremental_operation=confluent.AlterConfigOpType.SET)
            for name, text in settings.items()
        ]
        self.step(topic, *steps)

    def step(self, topic: str, *steps: Any) -> None:
        resource = confluent.ConfigResource("topic", topic, incremental_configs=list(steps))
        self._one(self.client.incremental_alter_configs([resource]))

    def settings(self, topic: str) -> dict[str, Setting]:
        return self._described("topic", topic)

    def broker_settings(self) -> dict[str, Setting]:
        return self._described("broker", "1")

    def partition_count(self, topic: str) -> int:
        return len(self.client.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)

    def close(self) -> None:
        """It has no end of its own."""

    def _described(self, kind: str, name: str) -> dict[str, Setting]:
        found = self._one(self.client.describe_configs([confluent.ConfigResource(kind, name)]))
        return {name: Setting(entry.value, entry.source) for name, entry in found.items()}

    def _one(self, futures: dict[Any, Future[Any]]) -> Any:
        (future,) = futures.values()
        try:
            return future.result(TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            raise Refused(error.args[0].code(), error.args[0].str()) from error


class KafkaPythonAdmin:
    def __init__(self, address: str) -> None:
        self.client: Any = kafka.admin.KafkaAdminClient(bootstrap_servers=address)  # it has no types

    def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        wanted = {
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": dict(settings or {}),
        }
        self._try(lambda: self.client.create_topics({topic: wanted}, validate_only=validate_only))

    def delete(self, topic: str) -> None:
        self._try(lambda: self.client.delete_topics([topic]))

    def grow(self, topic: str, partitions: int) -> None:
        self._try(lambda: self.client.create_partitions({topic: partitions}))

    def change(self, topic: str, settings: Mapping[str, str]) -> None:
        resource = kafka.admin.ConfigResource("topic", topic, dict(settings))
        text = self.client.alter_configs([resource], raise_on_unknown=False)["topic"][topic]
        if text != "OK":  # "[Error 40] ..."
            raise Refused(int(text.removeprefix("[Error ").partition("]")[0]), text)

    def settings(self, topic: str) -> dict[str, Setting]:
        return self._described("topic", topic)

    def broker_settings(self) -> dict[str, Setting]:
        return self._described("broker", "1")

    def partition_count(self, topic: str) -> int:
        return len(self.client.describe_topics([topic])[0]["partitions"])

    def close(self) -> None:
        self.client.close()

    def _described(self, kind: str, name: str) -> dict[str, Setting]:
        resource = kafka.admin.ConfigResource(kind, name)
        found = self.client.describe_configs([resource], config_filter="all")[kind][name]
        sources = kafka.admin.ConfigSourceType
        return {
            name: Setting(config["value"], sources[config["config_source"]].value)
            for name, config in found.items()
        }

    def _try(self, work: Any) -> None:
        try:
            work()
        except kafka.errors.BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error


class AioAdmin:
    def __init__(self, address: str) -> None:
        self._runner = asyncio.Runner()
        self.client: Any = self._run(self._started(address))  # it has no types

    async def _started(self, address: str) -> Any:
        client = aio.AIOKafkaAdminClient(bootstrap_servers=address)
        await client.start()
        return client

    def create(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        new = aio.NewTopic(topic, partitions, replicas, topic_configs=dict(settings or {}))
        answer = self._run(self.client.create_topics([new], TIMEOUT_MS, validate_only))
        ((_, code, text),) = answer.topic_errors
        _raise_if(code, text)

    def delete(self, topic: str) -> None:
        answer = self._run(self.client.delete_topics([topic], TIMEOUT_MS))
        ((_, code),) = answer.topic_error_codes
        _raise_if(code, None)

    def grow(self, topic: str, partitions: int) -> None:
        try:
            self._run(self.client.create_partitions({topic: aio.NewPartitions(partitions)}, TIMEOUT_MS))
        except BrokerResponseError as error:
            raise Refused(error.errno, str(error)) from error

    def change(self, topic: str, settings: Mapping[str, str]) -> None:
        (answer,) = self._run(self.client.alter_configs([AioResource("topic", topic, dict(settings))]))
        ((code, text, _, _),) = answer.resources
        _raise_if(code, text)

    def settings(self, topic: str) -> dict[str, Setting]:
        return self._described("topic", topic)

    def broker_settings(self) -> dict[str, Setting]:
        return self._described("broker", "1")

    def partition_count(self, topic: str) -> int:
        return len(self._run(self.client.describe_topics([topic]))[0]["partitions"])

    def close(self) -> None:
        self._run(self.client.close())
        self._runner.close()

    def _described(self, kind: str, name: str) -> dict[str, Setting]:
        (answer,) = self._run(self.client.describe_configs([AioResource(kind, name)]))
        ((code, text, _, _, entries),) = answer.resources
        _raise_if(code, text)
        return {entry[0]: Setting(entry[1], entry[3]) for entry in entries}

    def _run(self, work: Awaitable[Any]) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(TIMEOUT_S):
                return await work

        return self._runner.run(bounded())


def _raise_if(code: int, text: str | None) -> None:
    if code:
        raise Refused(code, text or "")
