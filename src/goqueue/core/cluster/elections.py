"""Who leads a partition, and what becomes of it when a node comes or goes.

Everybody in the in-sync set has all that was committed, so each of them may lead. So may an *eligible* replica: it left the
in-sync set when that became too small to commit anything, and until it is large enough again nothing can be committed that
it does not have. A crash or a power cut takes nothing of that away, because only what is fsynced counts as committed; folders or
bytes that are lost do. Whoever is neither may have missed acknowledged records; it leads only if somebody accepts their loss.

These functions change members and leader; epochs are counted where the change becomes an event (`draft.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct, structs

from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.partitions import NO_LEADER, PartitionState, in_sync_min, ordered

States = Mapping[int, NodeState]  # by node number; whoever is not there is as good as fenced


class ElectionRules(Struct, frozen=True):
    """What a topic's settings say."""

    min_insync_replicas: int = 1
    allows_unclean: bool = False


def can_serve(states: States, number: int) -> bool:
    """It may lead and be in sync: alive, though maybe draining."""
    return states.get(number, NodeState.FENCED) is not NodeState.FENCED


def settle(state: PartitionState, states: States, rules: ElectionRules) -> PartitionState:
    """With another leader, if there has to be another."""
    leader = state.leader
    is_able = leader in state.in_sync and can_serve(states, leader)
    if is_able and states[leader] is NodeState.ALIVE:
        return state
    chosen = _first(state.in_sync, states)
    if chosen is not None:
        is_better = not is_able or states[chosen] is NodeState.ALIVE
        return structs.replace(state, leader=chosen) if is_better else state
    chosen = _first(ordered(state.replicas, state.eligible), states)
    if chosen is not None:
        return _handed_to(state, chosen, rules)
    if rules.allows_unclean:
        return elect_unclean(state, states)
    return structs.replace(state, leader=NO_LEADER)


def elect_preferred(state: PartitionState, states: States) -> PartitionState:
    """Led by the first of its replicas, if that one can."""
    first = state.replicas[0]
    if first in state.in_sync and states.get(first) is NodeState.ALIVE:
        return structs.replace(state, leader=first)
    return state


def elect_unclean(state: PartitionState, states: States) -> PartitionState:
    """Led by any replica that is alive, if nobody leads it: what that one does not have is lost. One to which the partition is being moved has
    next to nothing yet, so it leads only if no other is there."""
    chosen = _first([each for each in state.replicas if each not in state.adding], states)
    if chosen is None:
        chosen = _first(state.adding, states)
    if chosen is None:
        return structs.replace(state, leader=NO_LEADER)
    epoch = state.leader_epoch + 1
    return structs.replace(
        state, in_sync=(chosen,), leader=chosen, eligible=(), leader_epoch=epoch, unclean_epoch=epoch
    )


def take_out(
    state: PartitionState, number: int, rules: ElectionRules, *, is_lost: bool = False
) -> PartitionState:
    """The node is fenced. It goes on having all that was committed while it was in sync, also if it was killed or has lost its
    power: followers report, and leaders count, only what they have fsynced. So it becomes or stays eligible where too few are
    left. `is_lost`: it says itself that folders or bytes are not there any more; it must not be elected for what it had."""
    if number in state.in_sync and len(state.in_sync) > 1:
        remaining = tuple(each for each in state.in_sync if each != number)
        return with_in_sync(state, remaining, rules, may_be_eligible=not is_lost)
    if not is_lost:
        return state
    eligible = tuple(each for each in state.eligible if each != number)
    if state.in_sync != (number,):
        return structs.replace(state, eligible=eligible)
    if eligible:
        # The last one in sync has come back incomplete, but others have all that was committed: it is they who count.
        first, *others = eligible
        return structs.replace(state, in_sync=(first,), eligible=tuple(others))
    # Nobody has all that was committed. It leads on with what it has, and others may have to give up more than that.
    epoch = state.leader_epoch + 1
    return structs.replace(state, leader_epoch=epoch, unclean_epoch=epoch)


def with_in_sync(
    state: PartitionState, in_sync: Collection[int], rules: ElectionRules, *, may_be_eligible: bool = True
) -> PartitionState:
    """With these in sync; whoever leaves is eligible while they are too few."""
    if len(in_sync) >= in_sync_min(state, rules.min_insync_replicas):
        eligible: tuple[int, ...] = ()
    else:
        leaving = set(state.in_sync) if may_be_eligible else set()
        eligible = ordered(state.replicas, (leaving | set(state.eligible)) - set(in_sync))
    return structs.replace(state, in_sync=ordered(state.replicas, in_sync), eligible=eligible)


def _handed_to(state: PartitionState, chosen: int, rules: ElectionRules) -> PartitionState:
    """To an eligible one: it is the in-sync set now. Those who were the last in sync have all that was committed, too."""
    return structs.replace(with_in_sync(state, (chosen,), rules), leader=chosen)


def _first(candidates: Collection[int], states: States) -> int | None:
    """One that drains only if nobody else is there."""
    for wanted in (NodeState.ALIVE, NodeState.DRAINING):
        for number in candidates:
            if states.get(number) is wanted:
                return number
    return None
