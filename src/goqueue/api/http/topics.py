"""The topic routes."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from goqueue.api.http.assignments import numbered
from goqueue.api.http.call import Call, NoBody
from goqueue.api.http.query import NoQuery
from goqueue.api.http.topic_bodies import (
    NewPartitionCount,
    NewTopic,
    OffsetRange,
    PartitionDescription,
    PartitionList,
    SettingValue,
    TopicChanges,
    TopicDeleted,
    TopicDescription,
    TopicGrown,
    TopicList,
    TopicSummary,
)
from goqueue.model.duration import format_instant
from goqueue.model.errors import InvalidReplicaAssignment, InvalidRequest, InvalidSetting
from goqueue.model.settings import HOUR_MS, RULES, UNLIMITED, TopicName
from goqueue.node.node import Node
from goqueue.node.requests import PartitionFacts, TopicFacts
from goqueue.node.topics import Placement


async def create_topic(call: Call[NoQuery, NewTopic]) -> TopicSummary:
    new = call.body
    if new.replication_factor not in (UNSET, 1) and call.node.config.is_solo:
        raise InvalidRequest(
            f"replication_factor is {new.replication_factor}, but this broker is one node: only 1 is possible",
            replication_factor=new.replication_factor,
        )
    count = None if isinstance(new.num_partitions, UnsetType) else new.num_partitions
    facts = await call.node.topics.create(
        new.name, partition_count=count, overrides=_overrides(new), placement=_placement(call.node, new)
    )
    await call.node.partitions_seen.until_known(new.name)
    await call.node.partitions_seen.until_led(new.name)
    return _summary(facts)


def _placement(node: Node, new: NewTopic) -> Placement:
    factor = None if isinstance(new.replication_factor, UnsetType) else new.replication_factor
    if isinstance(new.replica_assignments, UnsetType):
        return Placement(None if node.config.is_solo else factor)
    assignments = numbered(new.replica_assignments, node.directory, first=0)
    if new.num_partitions not in (UNSET, len(assignments)):
        raise InvalidReplicaAssignment(
            f"num_partitions is {new.num_partitions}, but replica_assignments names {len(assignments)} partitions",
            num_partitions=new.num_partitions,
        )
    return Placement(factor, assignments)


async def list_topics(call: Call[NoQuery, NoBody]) -> TopicList:
    return TopicList([_summary(facts) for facts in call.node.topics.list()])


async def describe_topic(call: Call[NoQuery, NoBody]) -> TopicDescription:
    return await _description(call.node, call.node.topics.get(call.path["topic"]))


async def alter_topic(call: Call[NoQuery, TopicChanges]) -> TopicDescription:
    changes = {
        name: None if value is None else setting_text(name, value) for name, value in call.body.config.items()
    }
    return await _description(call.node, await call.node.topics.alter(call.path["topic"], changes))


async def delete_topic(call: Call[NoQuery, NoBody]) -> TopicDeleted:
    name = call.path["topic"]
    await call.node.topics.delete(name)
    return TopicDeleted(name, True)


async def grow_topic(call: Call[NoQuery, NewPartitionCount]) -> TopicGrown:
    name = call.path["topic"]
    old_count = call.node.topics.get(name).partition_count
    given = call.body.replica_assignments
    assignments = (
        None if isinstance(given, UnsetType) else numbered(given, call.node.directory, first=old_count)
    )
    count = call.body.count
    if count < old_count:
        await call.node.keyed_groups.shrinking.check(name, count)
        await call.node.topics.shrink(name, count, discards_read=call.body.discard_read)
    else:
        await call.node.topics.grow(name, count, assignments)
        await call.node.partitions_seen.until_led(name)
    return TopicGrown(name, old_count, count, count - old_count)


async def list_partitions(call: Call[NoQuery, NoBody]) -> PartitionList:
    partitions = await call.node.partitions_seen.of(call.path["topic"], needs_leaders=False)
    return PartitionList([_partition(call.node, facts) for facts in partitions])


def setting_text(name: str, value: SettingValue) -> str:
    """A JSON value as settings are stored: text, as in Kafka."""
    if isinstance(RULES.get(name), TopicName) and not isinstance(value, str):
        raise InvalidSetting(
            f"setting {name!r} is {value!r}; a topic's name is text", setting=name, value=value
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _overrides(new: NewTopic) -> dict[str, str]:
    """All settings of a new topic under their own names, none of them given in two ways."""
    overrides = {name: setting_text(name, value) for name, value in new.config.items()}
    short = {}
    if not isinstance(new.retention_hours, UnsetType):
        hours = new.retention_hours
        short["retention.ms"] = str(UNLIMITED if hours == UNLIMITED else hours * HOUR_MS)
    if not isinstance(new.retention_bytes, UnsetType):
        short["retention.bytes"] = str(new.retention_bytes)
    for name in short:
        if name in overrides:
            raise InvalidRequest(
                f"{name} is given twice: in config and as {'retention_hours' if name.endswith('ms') else 'retention_bytes'}",
                setting=name,
            )
    return overrides | short


def _summary(facts: TopicFacts) -> TopicSummary:
    return TopicSummary(facts.name, facts.partition_count, format_instant(facts.created_ms))


async def _description(node: Node, facts: TopicFacts) -> TopicDescription:
    partitions = await node.partitions_seen.of(facts.name)
    return TopicDescription(
        name=facts.name,
        partitions=facts.partition_count,
        created=format_instant(facts.created_ms),
        total_messages=sum(partition.latest - partition.earliest for partition in partitions),
        total_size_bytes=sum(partition.size_bytes for partition in partitions),
        partition_offsets={str(one.partition): OffsetRange(one.earliest, one.latest) for one in partitions},
        config=facts.settings,
        overrides=facts.overrides,
    )


def _partition(node: Node, facts: PartitionFacts) -> PartitionDescription:
    name_of = node.directory.name_of
    return PartitionDescription(
        partition=facts.partition,
        leader=name_of(facts.leader),
        replicas=[name_of(number) for number in facts.replicas],
        isr=[name_of(number) for number in facts.in_sync],
        epoch=facts.leader_epoch,
        earliest=None if facts.earliest < 0 else facts.earliest,
        high_watermark=None if facts.high_watermark < 0 else facts.high_watermark,
        size_bytes=facts.size_bytes,
        failure=facts.failure,
        damage=facts.damage,
    )
