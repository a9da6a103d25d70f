"""The settings of topics and of the broker by Kafka's admin APIs, in every version."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.support.kafka_calls import Kafka, requests, with_kafka
from tests.support.nodes import CONFIG, create

from goqueue.api.kafka.config_entries import BROKER_NAMES
from goqueue.model.settings import SETTING_NAMES, TopicSettings
from goqueue.node.config import LogConfig
from goqueue.node.node import Node

_D = requests("describe_configs")
_A = requests("alter_configs")
_I = requests("incremental_alter_configs")
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
NONE, TOPIC_NOT_FOUND, INVALID_NAME, INVALID_CONFIG, INVALID_REQUEST = 0, 3, 17, 40, 42
OF_TOPIC, STATIC, DEFAULT = 1, 4, 5  # sources
SHORT_SEGMENTS = msgspec.structs.replace(
    CONFIG, topic_defaults=TopicSettings(segment_ms=5_000), log=LogConfig(cleanup_interval_ms=700)
)


async def described(
    kafka: Kafka,
    name: str,
    *,
    type: int = TOPIC,
    keys: list[str] | None = None,
    version: int = 4,
    **flags: bool,
) -> Any:
    resource = _D.DescribeConfigsResource(resource_type=type, resource_name=name, configuration_keys=keys)
    response = await kafka.call("describe_configs", version, resources=[resource], **flags)
    (result,) = response.results
    assert (result.resource_type, result.resource_name) == (type, name)
    return result


async def settings_of(kafka: Kafka, name: str, **options: Any) -> dict[str, Any]:
    result = await described(kafka, name, **options)
    assert (result.error_code, result.error_message) == (NONE, None)
    return {config.name: config for config in result.configs}


async def altered(
    kafka: Kafka, *configs: tuple[str, str | None], type: int = TOPIC, name: str = "orders", **fields: Any
) -> tuple[int, str | None]:
    resource = _A.AlterConfigsResource(
        resource_type=type,
        resource_name=name,
        configs=[_A.AlterableConfig(name=key, value=value) for key, value in configs],
    )
    response = await kafka.call("alter_configs", fields.pop("version", 2), resources=[resource], **fields)
    (result,) = response.responses
    assert (result.resource_type, result.resource_name) == (type, name)
    return result.error_code, result.error_message


async def stepped(
    kafka: Kafka, *steps: tuple[str, int, str | None], type: int = TOPIC, name: str = "orders", **fields: Any
) -> tuple[int, str | None]:
    resource = _I.AlterConfigsResource(
        resource_type=type,
        resource_name=name,
        configs=[
            _I.AlterableConfig(name=key, config_operation=action, value=value) for key, action, value in steps
        ],
    )
    version = fields.pop("version", 1)
    response = await kafka.call("incremental_alter_configs", version, resources=[resource], **fields)
    (result,) = response.responses
    assert (result.resource_type, result.resource_name) == (type, name)
    return result.error_code, result.error_message


def test_a_topic_is_described_in_every_version_with_the_sources_of_its_settings() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, retention_ms="1000")
        for version in kafka.versions("describe_configs"):
            configs = await settings_of(kafka, "orders", version=version)
            assert {name: config.value for name, config in configs.items()} == node.topics.get(
                "orders"
            ).settings
            assert configs["retention.ms"].config_source == OF_TOPIC
            assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("5000", STATIC)
            assert configs["segment.bytes"].config_source == DEFAULT
            assert not any(config.read_only or config.is_sensitive for config in configs.values())
            assert not any(config.synonyms or config.documentation for config in configs.values())

    with_kafka(main, config=SHORT_SEGMENTS)


def test_synonyms_are_all_places_that_give_a_value_the_strongest_first() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, segment_ms="9000", retention_ms="1000")
        configs = await settings_of(kafka, "orders", include_synonyms=True)
        origins = {
            name: [(one.name, one.value, one.source) for one in config.synonyms]
            for name, config in configs.items()
        }
        assert origins["segment.ms"] == [
            ("segment.ms", "9000", OF_TOPIC),
            ("log.roll.ms", "5000", STATIC),
            ("log.roll.ms", "604800000", DEFAULT),
        ]
        assert origins["retention.ms"] == [
            ("retention.ms", "1000", OF_TOPIC),
            ("log.retention.ms", "604800000", DEFAULT),
        ]
        assert origins["segment.bytes"] == [("log.segment.bytes", "67108864", DEFAULT)]

    with_kafka(main, config=SHORT_SEGMENTS)


def test_types_and_documentation_are_told_from_version_3_on() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        for version in (3, 4):
            configs = await settings_of(kafka, "orders", version=version, include_documentation=True)
            assert all(config.documentation for config in configs.values())
            types = {name: config.config_type for name, config in configs.items()}
            assert types["unclean.leader.election.enable"] == 1
            assert types["compression.type"] == 2
            assert types["segment.bytes"] == 3
            assert types["retention.ms"] == 5
            assert types["min.cleanable.dirty.ratio"] == 6
            assert types["cleanup.policy"] == 7

    with_kafka(main)


def test_only_the_settings_that_are_asked_for_are_told() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        assert set(await settings_of(kafka, "orders", keys=["retention.ms", "colour"])) == {"retention.ms"}
        assert set(await settings_of(kafka, "orders", keys=[])) == set(SETTING_NAMES)

    with_kafka(main)


def test_every_topic_setting_has_a_name_as_a_default_of_the_broker() -> None:
    assert set(BROKER_NAMES) == set(SETTING_NAMES)
    assert len(set(BROKER_NAMES.values())) == len(BROKER_NAMES)


def test_the_broker_is_described_and_cannot_be_changed() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        for version in kafka.versions("describe_configs"):
            configs = await settings_of(kafka, "1", type=BROKER, version=version, include_synonyms=True)
            values = {name: (config.value, config.config_source) for name, config in configs.items()}
            assert values["broker.id"] == ("1", DEFAULT)
            assert values["num.partitions"] == ("1", STATIC)
            assert values["auto.create.topics.enable"] == ("true", DEFAULT)
            assert values["log.retention.check.interval.ms"] == ("700", STATIC)
            assert values["log.roll.ms"] == ("5000", STATIC)
            assert values["message.max.bytes"] == ("1048576", DEFAULT)
            assert values["advertised.listeners"] == ("PLAINTEXT://broker.example:9092", STATIC)
            assert all(config.read_only for config in configs.values())
            assert [one.value for one in configs["log.roll.ms"].synonyms] == ["5000", "604800000"]
        assert await settings_of(kafka, "", type=BROKER) == {}
        for alter in (altered(kafka, type=BROKER, name="1"), stepped(kafka, type=BROKER, name="1")):
            code, message = await alter
            assert code == INVALID_REQUEST
            assert message is not None
            assert "restart" in message

    with_kafka(main, config=SHORT_SEGMENTS)


@pytest.mark.parametrize(
    ("type", "name", "code"),
    [
        (TOPIC, "none", TOPIC_NOT_FOUND),
        (TOPIC, "a/b", INVALID_NAME),
        (TOPIC, "__consumer_offsets", TOPIC_NOT_FOUND),
        (BROKER, "2", INVALID_REQUEST),
        (BROKER, "one" * 10_000, INVALID_REQUEST),
        (LOGGER, "1", INVALID_REQUEST),
        (0, "orders", INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_is_refused(type: int, name: str, code: int) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        for version in kafka.versions("describe_configs"):
            result = await described(kafka, name, type=type, version=version)
            assert (result.error_code, list(result.configs)) == (code, [])
            assert result.error_message
        for version in kafka.versions("alter_configs"):
            assert (await altered(kafka, type=type, name=name, version=version))[0] == code
        for version in kafka.versions("incremental_alter_configs"):
            assert (await stepped(kafka, type=type, name=name, version=version))[0] == code

    with_kafka(main)


def test_altering_replaces_all_settings_of_a_topic() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        for version in kafka.versions("alter_configs"):
            await create(node, f"orders-{version}", retention_ms="1000", segment_ms="2000")
            outcome = await altered(
                kafka, ("retention.ms", "3000"), name=f"orders-{version}", version=version
            )
            assert outcome == (NONE, None)
            assert node.topics.get(f"orders-{version}").overrides == {"retention.ms": "3000"}

    with_kafka(main)


def test_altering_may_only_be_validated() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, retention_ms="1000")
        assert await altered(kafka, ("segment.ms", "3000"), validate_only=True) == (NONE, None)
        assert await stepped(kafka, ("segment.ms", SET, "3000"), validate_only=True) == (NONE, None)
        assert (await altered(kafka, ("segment.ms", "soon"), validate_only=True))[0] == INVALID_CONFIG
        assert (await stepped(kafka, ("segment.ms", SET, "soon"), validate_only=True))[0] == INVALID_CONFIG
        assert node.topics.get("orders").overrides == {"retention.ms": "1000"}

    with_kafka(main)


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ([("retention.ms", "soon")], INVALID_CONFIG),
        ([("colour", "red")], INVALID_CONFIG),
        ([("c" * 32_000, "red")], INVALID_CONFIG),
        ([("retention.ms", None)], INVALID_REQUEST),
        ([("retention.ms", "1"), ("retention.ms", "2")], INVALID_REQUEST),
        ([("segment.ms", "2000"), ("retention.ms", "soon")], INVALID_CONFIG),
    ],
)
def test_a_wrong_replacement_changes_nothing(configs: list[tuple[str, str | None]], code: int) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, retention_ms="1000")
        for version in kafka.versions("alter_configs"):
            assert (await altered(kafka, *configs, version=version))[0] == code
        assert node.topics.get("orders").overrides == {"retention.ms": "1000"}

    with_kafka(main)


def test_settings_are_changed_step_by_step_in_every_version() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        for version in kafka.versions("incremental_alter_configs"):
            name = f"orders-{version}"
            await create(node, name, retention_ms="1000", segment_ms="2000")
            steps = [
                ("retention.ms", SET, "3000"),
                ("segment.ms", DELETE, None),
                ("cleanup.policy", APPEND, "compact"),
            ]
            assert await stepped(kafka, *steps, name=name, version=version) == (NONE, None)
            assert node.topics.get(name).overrides == {
                "retention.ms": "3000",
                "cleanup.policy": "compact,delete",
            }
            assert await stepped(kafka, ("cleanup.policy", SUBTRACT, "delete"), name=name) == (NONE, None)
            assert node.topics.get(name).settings["cleanup.policy"] == "compact"

    with_kafka(main)


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([("retention.ms", SET, "soon")], INVALID_CONFIG),
        ([("retention.ms", SET, None)], INVALID_REQUEST),
        ([("retention.ms", APPEND, "1")], INVALID_CONFIG),
        ([("cleanup.policy", SUBTRACT, "delete")], INVALID_CONFIG),  # nothing is left
        ([("colour", DELETE, None)], INVALID_CONFIG),
        ([("retention.ms", 4, "1")], INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], INVALID_REQUEST),
        ([("segment.ms", SET, "2000"), ("colour", SET, "red")], INVALID_CONFIG),
    ],
)
def test_a_wrong_step_changes_nothing(steps: list[tuple[str, int, str | None]], code: int) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, retention_ms="1000")
        for version in kafka.versions("incremental_alter_configs"):
            assert (await stepped(kafka, *steps, version=version))[0] == code
        assert node.topics.get("orders").overrides == {"retention.ms": "1000"}

    with_kafka(main)


def test_a_resource_that_is_named_twice_is_refused_and_others_are_not() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, "a")
        await create(node, "b")
        resources = [
            _A.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=name,
                configs=[_A.AlterableConfig(name="retention.ms", value="5000")],
            )
            for name in ("a", "b", "a")
        ]
        response = await kafka.call("alter_configs", 2, resources=resources)
        assert [(one.resource_name, one.error_code) for one in response.responses] == [
            ("a", INVALID_REQUEST),
            ("b", NONE),
            ("a", INVALID_REQUEST),
        ]
        assert node.topics.get("a").overrides == {}
        assert node.topics.get("b").overrides == {"retention.ms": "5000"}

    with_kafka(main)
