"""What a broker tells of its cluster."""

from __future__ import annotations

from msgspec import Struct


class Endpoints(Struct, frozen=True):
    http: str
    kafka: str
    cluster: str


class ClusterNode(Struct, frozen=True):
    """A node as the answering one sees it. Only the controller knows when it was last heard of."""

    name: str
    number: int
    status: str
    state: str
    is_controller: bool
    is_voter: bool
    endpoints: Endpoints
    rack: str
    version: str
    leader_count: int
    replica_count: int
    last_heard_ms: int | None = None
    level: int | None = None


class ClusterNodes(Struct, frozen=True):
    nodes: list[ClusterNode]


class ClusterState(Struct, frozen=True):
    node: str
    cluster_id: str | None
    role: str
    term: int
    leader: str | None
    voters: list[str]
    commit_index: int
    applied_index: int
    last_index: int
    level: int = 1


class ClusterHealth(Struct, frozen=True):
    status: str
    controller: str | None
    partitions_without_leader: int
    partitions_short_of_replicas: int
    nodes_fenced: list[str]
    voters_not_counting: (
        list[str] | None
    ) = []  # None: the controller has not said; an earlier version never does

    @property
    def is_well(self) -> bool:
        return self.status == "ok"


class Voters(Struct, frozen=True):
    voters: list[str]
    controller: str | None


class MovedPartition(Struct, frozen=True):
    topic: str
    partition: int
    leader: str


class Rebalanced(Struct, frozen=True):
    moved: list[MovedPartition]
