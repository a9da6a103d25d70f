"""What leaders and operators ask of partitions: other in-sync sets, elections, moves, newer epochs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from goqueue.core.cluster import reassignment
from goqueue.core.cluster.commands import (
    AlterPartitions,
    BumpLeaderEpoch,
    ElectLeaders,
    InSyncProposal,
    ReassignPartitions,
    RelieveNodes,
)
from goqueue.core.cluster.draft import Cluster, Draft
from goqueue.core.cluster.elections import States, can_serve, elect_preferred, elect_unclean, with_in_sync
from goqueue.core.cluster.events import PartitionsChanged
from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.partitions import NO_LEADER, PartitionState
from goqueue.model.cluster_errors import ReassignmentNotFound
from goqueue.model.errors import InvalidReplicaAssignment, InvalidRequest


def alter(cluster: Cluster, command: AlterPartitions) -> list[PartitionsChanged]:
    """Each proposal for itself; what is stale is dropped, and its leader will see a newer state and propose anew. One that is current counts
    the epoch up even if nothing else comes of it: an earlier one of the same leader, of which it has heard nothing and which may
    still be under way, is stale then, and it need not wait for whoever that would have let in."""
    sender = cluster.nodes.by_number(command.node)
    if sender is None or sender.incarnation != command.incarnation or sender.state is NodeState.FENCED:
        return []
    draft = Draft(cluster)
    for proposal in command.proposals:
        topic, index = proposal.topic, proposal.partition
        state = cluster.partitions.find(topic, index)
        if state is None or draft.has(topic, index) or not _is_current(state, command.node, proposal):
            continue
        if _is_possible(state, draft.states, proposal.in_sync):
            changed = with_in_sync(
                state,
                proposal.in_sync,
                cluster.rules_of(topic),
                may_be_eligible=not proposal.is_damaged,
            )
            draft.settle(topic, index, changed)
        draft.count_up(topic, index)
    return draft.events()


def _is_current(state: PartitionState, sender: int, proposal: InSyncProposal) -> bool:
    seen = proposal.leader_epoch, proposal.epoch
    return state.leader == sender and (state.leader_epoch, state.epoch) == seen


def _is_possible(state: PartitionState, states: States, members: Sequence[int]) -> bool:
    return (
        bool(members)  # without the sender: its disk has failed, and another is to lead
        and len(set(members)) == len(members)
        and all(each in state.replicas and can_serve(states, each) for each in members)
    )


def elect(cluster: Cluster, command: ElectLeaders) -> list[PartitionsChanged]:
    table = cluster.partitions
    is_unclean = command.kind == "unclean"
    if command.partitions is not None:
        keys = command.partitions
    else:
        keys = table.led_by(NO_LEADER) if is_unclean else table.astray()
    draft = Draft(cluster)
    for topic, index in keys:
        state = table.get(topic, index)
        if not is_unclean:
            draft.put(topic, index, elect_preferred(state, draft.states))
        elif state.leader == NO_LEADER:
            draft.settle(topic, index, elect_unclean(state, draft.states))
    return draft.events()


def relieve(cluster: Cluster, command: RelieveNodes) -> list[PartitionsChanged]:
    draft = Draft(cluster)
    for number in command.nodes:
        for topic, index in cluster.partitions.led_by(number):
            state = cluster.partitions.get(topic, index)
            able = [
                each
                for each in state.in_sync
                if each not in command.nodes and draft.states.get(each) is NodeState.ALIVE
            ]
            if able:
                draft.put(topic, index, structs.replace(state, leader=able[0]))
    return draft.events()


def reassign(cluster: Cluster, command: ReassignPartitions) -> list[PartitionsChanged]:
    """All of the plan or nothing."""
    if not command.targets:
        raise InvalidRequest("the plan names no partition")
    draft = Draft(cluster)
    planned: set[tuple[str, int]] = set()
    for topic, index, replicas in command.targets:
        where = f"{topic}-{index}"
        if (topic, index) in planned:
            raise InvalidReplicaAssignment(f"the plan names {where} twice", topic=topic, partition=index)
        planned.add((topic, index))
        state = cluster.partitions.get(topic, index)
        before = cluster.partitions.before(topic, index)
        base, rules = before or state.replicas, cluster.rules_of(topic)
        if replicas is not None:
            least = reassignment.least_count(base, rules)
            reassignment.check_target(where, replicas, draft.states, least)
        elif before is None:
            raise ReassignmentNotFound(f"{where} is not being moved", topic=topic, partition=index)
        target = base if replicas is None else tuple(replicas)
        moved = reassignment.begin(where, state, base, target, rules)
        draft.settle(topic, index, moved)
    return draft.events()


def bump(cluster: Cluster, command: BumpLeaderEpoch) -> list[PartitionsChanged]:
    state = cluster.partitions.get(command.topic, command.partition)
    draft = Draft(cluster)
    if state.leader_epoch <= command.above:
        bumped = structs.replace(state, leader_epoch=command.above + 1)
        draft.put(command.topic, command.partition, bumped)
    return draft.events()


def reconsider(cluster: Cluster, topic: str) -> list[PartitionsChanged]:
    """The topic's rules have changed (`rules_of` knows the new ones): with fewer in sync than before it may commit, and whoever
    misses that must not be elected."""
    draft = Draft(cluster)
    rules = cluster.rules_of(topic)
    for index, state in enumerate(cluster.partitions.of(topic)):
        draft.settle(topic, index, with_in_sync(state, state.in_sync, rules))
    return draft.events()
