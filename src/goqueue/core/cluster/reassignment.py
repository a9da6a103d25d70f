"""Moving a partition to other nodes. While it moves, its replicas are the new ones and those of the old that will go; when the
new ones are all in sync the old ones go, in the same decision. Nobody leaves before there is enough without it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from goqueue.core.cluster.elections import ElectionRules, States, can_serve, with_in_sync
from goqueue.core.cluster.partitions import PartitionState, in_sync_min, ordered
from goqueue.model.errors import InvalidReplicaAssignment


def check_target(where: str, target: Sequence[int], states: States, least: int) -> None:
    """`least`: of how many replicas it must not have fewer, for whoever asks for `acks=all` counts on them."""
    if not target:
        raise InvalidReplicaAssignment(f"{where} is to have no replicas at all; name at least one node")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(
            f"{where} is to be twice on one node: {list(target)}", replicas=list(target)
        )
    unknown = [each for each in target if each not in states]
    if unknown:
        raise InvalidReplicaAssignment(
            f"{where} is to be on {numbers(unknown)}, which the cluster does not have; it has {numbers(sorted(states))}",
            replicas=list(target),
        )
    fenced = [each for each in target if not can_serve(states, each)]
    if fenced:
        raise InvalidReplicaAssignment(
            f"{where} is to be on {numbers(fenced)}, which is down or not ready", replicas=list(target)
        )
    if len(target) < least:
        raise InvalidReplicaAssignment(
            f"{where} would be on {numbers(target)} only, but its topic wants {least} in sync "
            "(min.insync.replicas); name more nodes",
            replicas=list(target),
        )


def least_count(before: Sequence[int], rules: ElectionRules) -> int:
    """What has fewer replicas than its topic wants in sync must not get fewer still."""
    return min(rules.min_insync_replicas, len(before))


def begin(
    where: str, state: PartitionState, before: tuple[int, ...], target: tuple[int, ...], rules: ElectionRules
) -> PartitionState:
    """From the replicas it had before it moved to the target. A move that is under way is given up: what it had added goes,
    unless the new target has it, too. With the target as before, that is all that happens."""
    removing = tuple(each for each in before if each not in target)
    replicas = target + removing
    in_sync = ordered(replicas, state.in_sync)
    if not in_sync:
        raise InvalidReplicaAssignment(
            f"{where} cannot be given back to {numbers(before)}: none of them is in sync, only {numbers(state.in_sync)}; "
            "wait for one, or move it elsewhere",
            replicas=list(target),
        )
    moved = structs.replace(
        state,
        replicas=replicas,
        adding=tuple(each for each in target if each not in before),
        removing=removing,
    )
    return with_in_sync(moved, in_sync, rules)


def complete(state: PartitionState, states: States, rules: ElectionRules) -> PartitionState:
    """Without the replicas that are to go, if it can do without them now."""
    if not state.is_moving or not set(state.adding) <= set(state.in_sync):
        return state
    target = state.target
    remaining = ordered(target, state.in_sync)
    moved = structs.replace(state, replicas=target, adding=(), removing=())
    is_enough = len(remaining) >= max(1, in_sync_min(moved, rules.min_insync_replicas))
    if not is_enough or not any(can_serve(states, each) for each in remaining):
        return state
    return with_in_sync(moved, remaining, rules)


def numbers(nodes: Sequence[int]) -> str:
    return ("node " if len(nodes) == 1 else "nodes ") + ", ".join(map(str, nodes))
