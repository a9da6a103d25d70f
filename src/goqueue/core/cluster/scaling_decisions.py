"""What is decided about topics with `scaling=keyed`: that they shrink, and how far a change of their partitions has come."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from goqueue.core.cluster import scaling
from goqueue.core.cluster.commands import (
    FencePartition,
    FinishShrinking,
    ReleaseHolds,
    ReportDrained,
    ShrinkTopic,
)
from goqueue.core.cluster.draft import Cluster
from goqueue.core.cluster.events import ScalingChanged, TopicCreated, TopicShrunk
from goqueue.core.cluster.partitions import PartitionState
from goqueue.core.cluster.scaling import Scaling
from goqueue.model.errors import InvalidPartitions

ScalingEvent = ScalingChanged | TopicShrunk


def shrink(topic: TopicCreated, now: Scaling | None, command: ShrinkTopic) -> list[ScalingEvent]:
    if now is None:
        raise InvalidPartitions(
            f"topic {topic.name!r} has {topic.partition_count} partitions; only one that was created with scaling=keyed can get "
            f"fewer, not {command.partition_count}",
            partitions=command.partition_count,
            partition_count=topic.partition_count,
        )
    changed = scaling.shrink(topic.name, now, command.partition_count, discards_read=command.discards_read)
    return [ScalingChanged(topic.name, changed)]


def advance(
    cluster: Cluster,
    topic: TopicCreated | None,
    scalings: Mapping[str, Scaling],
    command: FencePartition | ReleaseHolds | ReportDrained | FinishShrinking,
) -> list[ScalingEvent]:
    """Nothing, where the command is stale or too early: whoever sent it sees a newer state and sends another."""
    now = scalings.get(command.topic)
    if now is None or topic is None or topic.id != command.topic_id:
        return []
    name, states = topic.name, cluster.partitions.of(topic.name)
    match command:
        case FencePartition():
            if not now.may_fence(command.partition) or not _is_leader(states[command.partition], command):
                return []
            return [ScalingChanged(name, scaling.fence(now, command.partition, command.offset))]
        case ReleaseHolds():
            is_due = now.stage == "merging" and not now.unfenced
            return [ScalingChanged(name, scaling.release(now))] if is_due else []
        case ReportDrained():
            is_due = now.stage == "draining" and command.partition in now.undrained
            if not is_due or not _is_leader(states[command.partition], command):
                return []
            return [ScalingChanged(name, scaling.drain(now, command.partition))]
        case FinishShrinking():
            if now.stage != "draining" or now.undrained:
                return []
            count = now.key_count
            next_epoch = 1 + max(state.leader_epoch for state in states[count:])
            done = structs.replace(scaling.finish(now), next_epoch=max(next_epoch, now.next_epoch))
            return [TopicShrunk(name, count), ScalingChanged(name, done)]


def _is_leader(state: PartitionState, command: FencePartition | ReportDrained) -> bool:
    return state.leader_epoch == command.leader_epoch
