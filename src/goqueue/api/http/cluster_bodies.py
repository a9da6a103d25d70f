"""The bodies of the routes about the cluster."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from goqueue.api.http.topic_bodies import Count
from goqueue.node.cluster.ports import NodeView

NodeName = Annotated[str, Meta(min_length=1, max_length=249, description="A node's name.")]
Number = Annotated[int, Meta(description="A node's number; -1 for nobody.")]


class NodeOrder(Struct, frozen=True, forbid_unknown_fields=True):
    node: NodeName


class RebalanceOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing has to be said."""


class NodeList(Struct, frozen=True, forbid_unknown_fields=True):
    nodes: list[NodeView]


class VoterList(Struct, frozen=True, forbid_unknown_fields=True):
    voters: Annotated[list[str], Meta(description="The names of the nodes that decide.")]
    controller: str | None


class ClusterHealth(Struct, frozen=True, forbid_unknown_fields=True):
    status: Annotated[str, Meta(description="ok, degraded, or no controller.")]
    controller: str | None
    partitions_without_leader: Count
    partitions_short_of_replicas: Count
    nodes_fenced: Annotated[list[str], Meta(description="Their names: nobody hears of them, or they start.")]
    voters_not_counting: Annotated[
        list[str] | None,
        Meta(
            description="Voters without which things have to be decided: they are not heard of, or have lost their metadata and do "
            "not have it again. As long as there are any, take no other node down. null: the controller does not say."
        ),
    ]


class Replicas(Struct, frozen=True, forbid_unknown_fields=True):
    """Who has a partition, and who leads it. `eligible` are not in sync, but have everything that was committed."""

    replicas: list[Number]
    in_sync: list[Number]
    leader: Number
    leader_epoch: int
    epoch: int
    eligible: list[Number]
    adding: list[Number]
    removing: list[Number]
    unclean_epoch: Annotated[
        int, Meta(description="Of the last election that may have lost messages; -1: none.")
    ] = -1


class PlacedPartition(Struct, frozen=True, forbid_unknown_fields=True):
    partition: Count
    state: Replicas


class PlacedTopic(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    id: int
    partitions: list[PlacedPartition]


class ClusterMetadata(Struct, frozen=True, forbid_unknown_fields=True):
    cluster_id: str | None
    applied_index: Count
    topics: list[PlacedTopic]


class MovedPartition(Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    partition: Count
    leader: Annotated[str, Meta(description="Who leads it now.")]


class Rebalanced(Struct, frozen=True, forbid_unknown_fields=True):
    moved: list[MovedPartition]
