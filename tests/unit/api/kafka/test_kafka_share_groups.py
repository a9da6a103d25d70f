"""Members of share groups and the settings of groups, as Kafka's clients and tools ask for them."""

from __future__ import annotations

from typing import Any  # messages are made at run time
from uuid import UUID

import msgspec
from tests.support.kafka_calls import Kafka, requests, with_kafka
from tests.support.nodes import CONFIG, create

from goqueue.core.group.config import GroupConfig
from goqueue.model.group_settings import GROUP_SETTING_NAMES
from goqueue.node.node import Node

_D = requests("describe_configs")
_A = requests("alter_configs")
_I = requests("incremental_alter_configs")
GROUP = 32
SET, DELETE, APPEND = 0, 1, 2
OF_GROUP, STATIC, DEFAULT = 8, 4, 5
NONE, INVALID_GROUP, UNKNOWN_MEMBER, INVALID_CONFIG, INVALID_REQUEST = 0, 24, 25, 40, 42
NON_EMPTY_GROUP, GROUP_NOT_FOUND, FENCED_EPOCH, INVALID_TOPIC, INCONSISTENT_PROTOCOL = 68, 69, 110, 17, 23


async def heartbeat(kafka: Kafka, epoch: int = 0, **fields: Any) -> Any:
    if epoch == 0:
        fields.setdefault("subscribed_topic_names", ["orders"])
    fields = {"group_id": "g", "member_id": "m", "member_epoch": epoch, **fields}
    return await kafka.call("share_group_heartbeat", 1, **fields)


async def described(kafka: Kafka, group: str = "g") -> Any:
    (found,) = (await kafka.call("share_group_describe", 1, group_ids=[group])).groups
    return found


def partitions(assignment: Any) -> list[list[int]]:
    return [list(topic.partitions) for topic in assignment.topic_partitions]


def test_member_joins_is_heard_of_and_leaves() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, partition_count=3)
        joined = await heartbeat(kafka, rack_id="r")
        assert (joined.error_code, joined.error_message, joined.member_id) == (NONE, None, "m")
        assert joined.heartbeat_interval_ms == CONFIG.groups.share_heartbeat_ms
        assert partitions(joined.assignment) == [[0, 1, 2]]
        assert isinstance(joined.assignment.topic_partitions[0].topic_id, bytes | UUID)
        stays = await heartbeat(kafka, joined.member_epoch)
        assert (stays.error_code, stays.member_epoch, stays.assignment) == (
            NONE,
            joined.member_epoch,
            None,
        )
        left = await heartbeat(kafka, -1)
        assert (left.error_code, left.member_epoch) == (NONE, -1)
        assert (await heartbeat(kafka, joined.member_epoch)).error_code == UNKNOWN_MEMBER

    with_kafka(main)


def test_topic_that_does_not_exist_yet_is_assigned_when_it_does() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        joined = await heartbeat(kafka)
        assert partitions(joined.assignment) == []
        await create(node, partition_count=2)
        assert partitions((await heartbeat(kafka, joined.member_epoch)).assignment) == [[0, 1]]

    with_kafka(main)


def test_refusals_have_kafkas_codes_and_say_why() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        epoch = (await heartbeat(kafka)).member_epoch
        for fields, code, words in (
            ({"epoch": epoch + 1}, FENCED_EPOCH, f"is at epoch {epoch}, not {epoch + 1}"),
            ({"epoch": epoch, "member_id": "n"}, UNKNOWN_MEMBER, "has no member 'n'"),
            ({"group_id": ""}, INVALID_GROUP, "needs a name"),
            ({"subscribed_topic_names": []}, INVALID_REQUEST, "names the topics"),
            ({"subscribed_topic_names": ["a/b"]}, INVALID_TOPIC, "'a/b'"),
            ({"epoch": -2}, INVALID_REQUEST, "-2 is no member epoch"),
        ):
            answer = await heartbeat(kafka, **fields)
            assert (answer.error_code, words in answer.error_message) == (code, True), answer

    with_kafka(main)


def test_one_name_is_of_one_kind() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        await heartbeat(kafka)
        consumer: dict[str, Any] = {
            "group_id": "g",
            "member_id": "m",
            "member_epoch": 0,
            "rebalance_timeout_ms": 1_000,
            "subscribed_topic_names": ["orders"],
            "topic_partitions": [],
        }
        assert (await kafka.call("consumer_group_heartbeat", 1, **consumer)).error_code == GROUP_NOT_FOUND
        await kafka.call("consumer_group_heartbeat", 1, **(consumer | {"group_id": "c"}))
        assert (await heartbeat(kafka, group_id="c")).error_code == GROUP_NOT_FOUND
        assert (await described(kafka, "c")).error_code == GROUP_NOT_FOUND
        (found,) = (await kafka.call("describe_groups", 6, groups=["g"])).groups
        assert found.error_code == GROUP_NOT_FOUND
        protocol = requests("join_group").JoinGroupRequestProtocol(name="range", metadata=b"")
        joined = await kafka.call(
            "join_group",
            9,
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="m",
            protocol_type="consumer",
            protocols=[protocol],
        )
        assert joined.error_code == INCONSISTENT_PROTOCOL

    with_kafka(main)


def test_group_is_described_listed_and_deleted() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node, partition_count=2)
        epoch = (await heartbeat(kafka, rack_id="r")).member_epoch
        group = await described(kafka)
        assert (group.error_code, group.group_id, group.group_state) == (NONE, "g", "Stable")
        assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (epoch, epoch, "simple")
        (member,) = group.members
        assert (member.member_id, member.rack_id, member.member_epoch) == ("m", "r", epoch)
        assert (member.client_id, member.client_host) == ("test", "127.0.0.1")
        assert list(member.subscribed_topic_names) == ["orders"]
        assert [one.topic_name for one in member.assignment.topic_partitions] == ["orders"]
        assert partitions(member.assignment) == [[0, 1]]

        listed = await kafka.call("list_groups", 5, states_filter=[], types_filter=["share"])
        assert [(one.group_id, one.group_type, one.group_state) for one in listed.groups] == [
            ("g", "share", "Stable")
        ]
        assert (await deleted(kafka)) == NON_EMPTY_GROUP
        await heartbeat(kafka, -1)
        assert (await described(kafka)).group_state == "Empty"
        assert (await deleted(kafka)) == NONE
        assert (await described(kafka)).error_code == GROUP_NOT_FOUND

    async def deleted(kafka: Kafka) -> int:
        (result,) = (await kafka.call("delete_groups", 2, groups_names=["g"])).results
        return int(result.error_code)

    with_kafka(main)


# The settings of a group.


async def settings_of(kafka: Kafka, group: str = "g", **flags: Any) -> dict[str, Any]:
    resource = _D.DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=None)
    (result,) = (await kafka.call("describe_configs", 4, resources=[resource], **flags)).results
    assert result.error_code == NONE
    return {config.name: config for config in result.configs}


async def stepped(kafka: Kafka, *steps: tuple[str, int, str | None], **fields: Any) -> tuple[int, str | None]:
    resource = _I.AlterConfigsResource(
        resource_type=GROUP,
        resource_name=fields.pop("group", "g"),
        configs=[_I.AlterableConfig(name=name, config_operation=op, value=text) for name, op, text in steps],
    )
    response = await kafka.call("incremental_alter_configs", 1, resources=[resource], **fields)
    (result,) = response.responses
    return result.error_code, result.error_message


async def replaced(kafka: Kafka, **texts: str | None) -> tuple[int, str | None]:
    resource = _A.AlterConfigsResource(
        resource_type=GROUP,
        resource_name="g",
        configs=[_A.AlterableConfig(name=name.replace("_", "."), value=text) for name, text in texts.items()],
    )
    (result,) = (await kafka.call("alter_configs", 2, resources=[resource])).responses
    return result.error_code, result.error_message


def test_every_setting_of_a_group_is_described_also_of_one_that_does_not_exist() -> None:
    config = msgspec.structs.replace(CONFIG, groups=GroupConfig(share_session_ms=50_000))

    async def main(kafka: Kafka, node: Node) -> None:
        found = await settings_of(kafka, include_synonyms=True, include_documentation=True)
        assert set(found) == set(GROUP_SETTING_NAMES)
        assert {one.config_source for one in found.values()} == {DEFAULT, STATIC}
        assert all(one.documentation and not one.read_only for one in found.values())
        assert found["share.auto.offset.reset"].value == "latest"
        assert found["share.isolation.level"].value == "read_committed"
        assert (found["visibility.ms"].value, found["share.record.lock.duration.ms"].value) == (
            "30000",
            "30000",
        )
        assert (found["max.retries"].value, found["share.delivery.count.limit"].value) == ("3", "4")
        session = found["share.session.timeout.ms"]
        assert (session.value, session.config_source) == ("50000", STATIC)
        assert [(one.name, one.value) for one in session.synonyms] == [
            ("group.share.session.timeout.ms", "50000"),
            ("group.share.session.timeout.ms", "45000"),
        ]

    with_kafka(main, config=config)


def test_settings_are_altered_one_by_one_under_kafkas_names_and_ours() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        steps: tuple[tuple[str, int, str | None], ...] = (
            ("share.auto.offset.reset", SET, "earliest"),
            ("share.record.lock.duration.ms", SET, "15000"),
            ("share.delivery.count.limit", SET, "5"),
        )
        assert await stepped(kafka, *steps) == (NONE, None)
        found = await settings_of(kafka)
        assert {name for name, one in found.items() if one.config_source == OF_GROUP} == {
            "share.auto.offset.reset",
            "visibility.ms",
            "share.record.lock.duration.ms",
            "max.retries",
            "share.delivery.count.limit",
        }
        assert (found["share.delivery.count.limit"].value, found["max.retries"].value) == ("5", "4")
        assert node.groups.lease_settings_of("g") == {"max.retries": "4", "visibility.ms": "15000"}
        assert await stepped(kafka, ("visibility.ms", DELETE, None)) == (NONE, None)
        assert (await settings_of(kafka))["share.record.lock.duration.ms"].value == "30000"
        assert await settings_of(kafka, "other") == await settings_of(kafka, "another")

    with_kafka(main)


def test_settings_are_replaced_as_a_whole() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await stepped(kafka, ("max.retries", SET, "9"))
        assert await replaced(kafka, ordering="key", dlq_topic="dead") == (NONE, None)
        assert node.groups.settings_of("g") == {"dlq.topic": "dead", "ordering": "key"}
        assert await replaced(kafka) == (NONE, None)
        assert node.groups.settings_of("g") == {}
        code, _ = await replaced(kafka, ordering=None)
        assert code == INVALID_REQUEST

    with_kafka(main)


def test_only_checking_changes_nothing() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        assert await stepped(kafka, ("max.retries", SET, "9"), validate_only=True) == (NONE, None)
        code, text = await stepped(kafka, ("max.retries", SET, "many"), validate_only=True)
        assert (code, text) == (
            INVALID_CONFIG,
            "group setting 'max.retries' is 'many'; it must be a whole number from 0 to 1000",
        )
        assert node.groups.settings_of("g") == {}

    with_kafka(main)


def test_bad_settings_are_refused_and_none_of_them_is_taken() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        good = ("visibility.ms", SET, "1000")
        for step, code in (
            (("colour", SET, "red"), INVALID_CONFIG),
            (("share.renew.acknowledge.enable", SET, "false"), INVALID_CONFIG),
            (("max.retries", APPEND, "1"), INVALID_CONFIG),
            (("max.retries", SET, None), INVALID_REQUEST),
            (("max.retries", 9, "1"), INVALID_REQUEST),
            (("visibility.ms", DELETE, None), INVALID_REQUEST),
            (("share.record.lock.duration.ms", SET, "1"), INVALID_REQUEST),
        ):
            assert (await stepped(kafka, good, step))[0] == code, step
        assert (await stepped(kafka, good, group=""))[0] == INVALID_GROUP
        assert node.groups.settings_of("g") == {}

    with_kafka(main)
