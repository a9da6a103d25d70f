"""GET /admin/coordinators and /admin/coordinators/groups/{group}: which node coordinates what."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from goqueue.api.http.call import Call, NoBody
from goqueue.api.http.query import NoQuery
from goqueue.api.http.topic_bodies import Count
from goqueue.node.coordinators import CoordinatorKind
from goqueue.node.groups.members import check_group_id
from goqueue.node.internal_topics import (
    OFFSETS_TOPIC,
    PARTITION_COUNT,
    TRANSACTIONS_TOPIC,
    coordinator_partition,
)

Leader = Annotated[str, Meta(description="A node's name; empty where there is none for now.")]


class CoordinatorPlace(Struct, frozen=True, forbid_unknown_fields=True):
    """Whoever leads the partition coordinates what belongs to it."""

    partition: Count
    node: Leader


class Coordinators(Struct, frozen=True, forbid_unknown_fields=True):
    """Empty where nobody has asked for a coordinator yet."""

    groups: list[CoordinatorPlace]
    transactions: list[CoordinatorPlace]


class GroupCoordinator(Struct, frozen=True, forbid_unknown_fields=True):
    group: str
    partition: Annotated[int, Meta(ge=0, lt=PARTITION_COUNT)]
    node: str


async def list_coordinators(call: Call[NoQuery, NoBody]) -> Coordinators:
    return Coordinators(_places(call, OFFSETS_TOPIC), _places(call, TRANSACTIONS_TOPIC))


async def find_coordinator(call: Call[NoQuery, NoBody]) -> GroupCoordinator:
    group = call.path["group"]
    check_group_id(group)
    number = await call.node.coordinators.find(CoordinatorKind.GROUP, group)
    partition = coordinator_partition(group, PARTITION_COUNT)
    return GroupCoordinator(group, partition, call.node.directory.name_of(number))


def _places(call: Call[NoQuery, NoBody], topic: str) -> list[CoordinatorPlace]:
    leaders = call.node.coordinators.leaders(topic)
    return [
        CoordinatorPlace(index, call.node.directory.name_of(number)) for index, number in enumerate(leaders)
    ]
