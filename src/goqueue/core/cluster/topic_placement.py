"""Where the partitions of a topic go that is made or grows, and who leads them first."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from goqueue.core.cluster import placement
from goqueue.core.cluster.draft import Cluster, Draft
from goqueue.core.cluster.elections import ElectionRules, can_serve, settle
from goqueue.core.cluster.events import PartitionsChanged
from goqueue.core.cluster.partitions import PartitionState, new_partition, ordered
from goqueue.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor


def checked(
    cluster: Cluster, assignments: list[list[int]], count: int, factor: int | None
) -> list[list[int]]:
    """What somebody asks for, if it can be had. None on a standalone node."""
    found = placement.check_assignments(assignments, count, cluster.nodes.states())
    if factor is not None and found and factor != len(found[0]):
        raise InvalidReplicaAssignment(
            f"a replication factor of {factor} is wanted, but the assignments have {len(found[0])} replicas each"
        )
    return [] if cluster.nodes.is_empty else found


def placed(
    cluster: Cluster, topic_id: int, own: Sequence[PartitionState], count: int, factor: int | None
) -> list[list[int]]:
    """Wherever is room, beside those that the topic has. None on a standalone node."""
    if cluster.nodes.is_empty:
        if factor not in (None, 1):
            raise InvalidReplicationFactor(
                f"a replication factor of {factor} is not possible with 1 node; it must be 1",
                replication_factor=factor,
                node_count=1,
            )
        return []
    nodes = cluster.nodes.entries()
    return placement.place(
        nodes,
        cluster.partitions,
        own,
        topic_id=topic_id,
        count=count,
        factor=placement.replication_factor(factor, nodes),
    )


def first_leaders(
    cluster: Cluster,
    topic: str,
    first: int,
    assignments: list[list[int]],
    *,
    epoch_made: int = 0,
    epoch_min: int = 0,
) -> list[PartitionsChanged]:
    """Where not all of the replicas are alive, or the first of them drains; or where partitions are made with another leader epoch
    (`epoch_made`) than they are to begin with."""
    draft = Draft(cluster)
    for index, replicas in enumerate(assignments, first):
        new = new_partition(replicas, epoch_made)
        alive = ordered(replicas, [each for each in replicas if can_serve(draft.states, each)])
        led = settle(structs.replace(new, in_sync=alive), draft.states, ElectionRules())
        epoch = max(led.leader_epoch, epoch_min)
        draft.change(topic, index, new, structs.replace(led, leader_epoch=epoch))
    return draft.events()
