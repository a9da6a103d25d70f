"""How far the partitions of a topic have come in changing, and whom that waits for."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from goqueue.api.http.call import Call, NoBody
from goqueue.api.http.query import NoQuery
from goqueue.node.groups.standing import Standings
from goqueue.node.keyed_groups import Scaling, Stage
from goqueue.node.node import Node
from goqueue.node.requests import NO_LEADER

Count = Annotated[int, Meta(ge=0)]


class ScalingPartition(Struct, frozen=True, forbid_unknown_fields=True):
    """One that is not ready: it has no leader, or replicas that have not caught up."""

    partition: Count
    leader: str
    replicas: list[str]
    isr: list[str]


class ScalingState(StrEnum):
    COMPLETE = "complete"
    IN_PROGRESS = "in_progress"


class ScalingHold(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing of the partition from this offset on is shown to anybody for now."""

    partition: Count
    offset: Count


class WaitingGroup(Struct, frozen=True, forbid_unknown_fields=True):
    group: str
    has_members: bool
    committed: Annotated[Count | None, Meta(description="In the partition to be read; null: nothing.")]
    is_settled: Annotated[
        bool, Meta(description="None of its members has a partition that it is not to be given.")
    ]


class ScalingGate(Struct, frozen=True, forbid_unknown_fields=True):
    """A group is not given partition `blocked` before it has read partition `behind` up to the offset `until`."""

    blocked: Count
    behind: Count
    until: Count
    groups: Annotated[list[WaitingGroup], Meta(description="Those that have not.")]


class KeyedScaling(Struct, frozen=True, forbid_unknown_fields=True):
    stage: Annotated[
        Stage,
        Meta(
            description="growing: old partitions have yet to say where they end. merging: likewise, of a topic that shrinks, "
            "or groups have yet to give up what stays. draining: groups have yet to read what goes, or something is left in it."
        ),
    ]
    key_count: Annotated[Count, Meta(description="Keys are spread over so many partitions.")]
    old_count: Annotated[Count, Meta(description="And were over so many before the last change.")]
    unfenced: Annotated[
        list[Count], Meta(description="Partitions that have not said yet where the old part ends.")
    ]
    holds: list[ScalingHold]
    gates: Annotated[list[ScalingGate], Meta(description="Only those that a group has yet to pass.")]
    unsettled: Annotated[
        list[str],
        Meta(description="Groups that have members with a partition that they are to give up."),
    ]
    unanswered: Annotated[list[str], Meta(description="Nodes that did not say how their groups stand.")]
    undrained: Annotated[
        list[Count],
        Meta(
            description="Partitions that go and have something left: messages that retention keeps (not with `discard_read`), "
            "delayed ones, recurring schedules, what a queue group has not finished, or an open transaction."
        ),
    ]
    discard_read: Annotated[
        bool, Meta(description="Partitions go as soon as every group has read them, whatever retention says.")
    ]


class ScalingStatus(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    status: ScalingState
    partitions: Count
    partitions_ready: Count
    pending: list[ScalingPartition]
    keyed: Annotated[KeyedScaling | None, Meta(description="null where the topic is not of scaling=keyed.")]


async def scaling_status(call: Call[NoQuery, NoBody]) -> ScalingStatus:
    """As the catalogue has it: a partition is ready when it is led and all its replicas are in sync."""
    topic, node = call.path["topic"], call.node
    partitions, name_of = node.topics.partitions(topic), node.directory.name_of
    pending = [
        ScalingPartition(
            one.partition,
            name_of(one.leader),
            [name_of(number) for number in one.replicas],
            [name_of(number) for number in one.in_sync],
        )
        for one in partitions
        if one.leader == NO_LEADER or len(one.in_sync) < len(one.replicas)
    ]
    scaling = node.keyed_groups.scaling_of(topic)
    is_busy = bool(pending) or (scaling is not None and scaling.stage != "steady")
    return ScalingStatus(
        topic,
        ScalingState.IN_PROGRESS if is_busy else ScalingState.COMPLETE,
        len(partitions),
        len(partitions) - len(pending),
        pending,
        None if scaling is None else await _keyed(node, topic, scaling),
    )


async def _keyed(node: Node, topic: str, scaling: Scaling) -> KeyedScaling:
    told = await node.keyed_groups.standings.of(topic, scaling)
    answers = [one for one in told.values() if isinstance(one, Standings) and one.is_current]
    groups = [group for one in answers for group in one.groups]
    waiting: dict[tuple[int, int, int], list[WaitingGroup]] = {}
    for group in groups:
        for left in group.left:
            waiting.setdefault((left.blocked, left.behind, left.until), []).append(
                WaitingGroup(group.group_id, group.has_members, left.committed, group.is_settled)
            )
    return KeyedScaling(
        stage=scaling.stage,
        key_count=scaling.key_count,
        old_count=scaling.old_count,
        unfenced=list(scaling.unfenced),
        holds=[ScalingHold(hold.partition, hold.offset) for hold in scaling.holds],
        gates=[ScalingGate(*gate, groups=found) for gate, found in sorted(waiting.items())],
        unsettled=[group.group_id for group in groups if not group.is_settled],
        unanswered=[
            name for name, one in told.items() if not (isinstance(one, Standings) and one.is_current)
        ],
        undrained=list(scaling.undrained),
        discard_read=scaling.discards_read,
    )
