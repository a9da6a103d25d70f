"""Deliberate mistakes about logs that get shorter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from goqueue.core.replica.replicas import Replicas
from goqueue.node.cluster.ports import ReplicaFound
from goqueue.node.housekeeping import Housekeeping
from goqueue.node.partition import Partition
from goqueue.node.replication.following import Follower


@contextmanager
def keep_what_the_leader_deletes() -> Iterator[None]:
    """A follower does not take over where its leader begins."""
    take_one = Follower._take_one

    async def take(self: Follower, partition: Partition, found: ReplicaFound) -> bool:
        if found.error is None:
            found.log_start = 0
        return await take_one(self, partition, found)

    with patch.object(Follower, "_take_one", take):
        yield


@contextmanager
def delete_alone() -> Iterator[None]:
    """What is deleted on request is acknowledged when it is so on the leader, and not on whoever leads next."""
    with patch.object(Replicas, "start", lambda self, name: 1 << 62):
        yield


@contextmanager
def forget_tombstones_early() -> Iterator[None]:
    """A tombstone goes though a replica is away that has not heard of it."""
    with patch.object(Housekeeping, "_is_everywhere", lambda self, partition: True):
        yield
