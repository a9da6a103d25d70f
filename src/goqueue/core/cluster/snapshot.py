"""The catalogue as one piece of JSON, for a node that is too far behind to be told every event."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from goqueue.core.cluster.events import PartitionChange, TopicCreated
from goqueue.core.cluster.nodes import NodeEntry
from goqueue.core.cluster.partition_table import PartitionTable
from goqueue.core.cluster.partitions import STANDALONE, PartitionState
from goqueue.core.cluster.plans import Plan
from goqueue.core.cluster.scaling import Scaling
from goqueue.model.errors import StorageError

VERSION = 1


class Snapshot(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    version: int
    cluster_id: str | None
    receipt_key: str | None
    next_producer_id: int
    next_topic_id: int
    topics: list[TopicCreated]  # sorted by name
    deleted: list[str]
    companions: dict[str, list[str]]
    nodes: list[NodeEntry]
    removed_nodes: dict[str, int]
    fenced_while_draining: list[str]
    partitions: list[PartitionChange] = []  # all but those that a standalone node made
    before: list[tuple[str, int, tuple[int, ...]]] = []  # the replicas of what is moving, before it did
    plans: list[Plan] = []  # the oldest first
    next_plan_id: int = 1
    scalings: dict[str, Scaling] = {}  # of topics with scaling=keyed
    level: int = 1  # of features, in force
    epoch_free: int = 0  # above the leader epochs of all topics that were deleted


_decoder: msgspec.json.Decoder[Snapshot] = msgspec.json.Decoder(Snapshot)


def encode_snapshot(rest: Snapshot, table: PartitionTable) -> bytes:
    """With the partitions of the table."""
    partitions = [
        PartitionChange.of(topic.name, index, state)
        for topic in rest.topics
        for index, state in enumerate(table.of(topic.name))
        if state != STANDALONE
    ]
    before = [(*key, table.before(*key) or ()) for key in table.moving()]
    return msgspec.json.encode(msgspec.structs.replace(rest, partitions=partitions, before=before))


def decode_snapshot(data: bytes) -> tuple[Snapshot, dict[str, list[PartitionState]]]:
    """The states of the partitions, by topic."""
    snapshot = _decoder.decode(data)
    if snapshot.version > VERSION:
        raise StorageError(
            f"the snapshot of the catalogue has version {snapshot.version}; this program knows versions up to {VERSION}"
        )
    states = {topic.name: [STANDALONE] * topic.partition_count for topic in snapshot.topics}
    for change in snapshot.partitions:
        states[change.topic][change.partition] = change.state
    return snapshot, states
