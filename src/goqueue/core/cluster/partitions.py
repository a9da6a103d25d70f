"""Who has a partition, who leads it, and who may."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

NO_LEADER = -1
NEVER = -1
OWN_EPOCHS = -1  # the leader epoch of a standalone node's partition: the node itself counts


class PartitionState(Struct, frozen=True):
    replicas: tuple[int, ...]  # node numbers; the first is the preferred leader
    in_sync: tuple[int, ...]  # in the order of the replicas; never empty
    leader: int
    leader_epoch: int  # grows with every leadership
    epoch: int  # counts every change of the partition
    eligible: tuple[int, ...] = ()  # not in sync, but has everything that was committed
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    unclean_epoch: int = NEVER  # the leader epoch of the last election that may have lost committed records

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when nothing moves any more."""
        return tuple(each for each in self.replicas if each not in self.removing)


STANDALONE = PartitionState(replicas=(1,), in_sync=(1,), leader=1, leader_epoch=OWN_EPOCHS, epoch=0)


def new_partition(replicas: Collection[int], leader_epoch: int = 0) -> PartitionState:
    """Empty, so every replica has all of it."""
    first, *_ = members = tuple(replicas)
    return PartitionState(replicas=members, in_sync=members, leader=first, leader_epoch=leader_epoch, epoch=0)


def in_sync_min(state: PartitionState, min_insync_replicas: int) -> int:
    """How many have to be in sync before anything is committed. The controller and the leader must agree on it: with fewer, the
    controller keeps whoever leaves eligible, because it counts on the leader to commit nothing."""
    return min(min_insync_replicas, len(state.replicas))


def ordered(replicas: Collection[int], members: Collection[int]) -> tuple[int, ...]:
    """Those replicas that are among the members."""
    return tuple(each for each in replicas if each in members)
