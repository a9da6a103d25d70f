"""One step of a member from what it has towards its target: first it gives up, then it gets.

A partition goes to its new owner only when no other member has it, neither assigned nor still to be given up. A member
that must give up partitions stays in its epoch, so that its commits are taken, until its heartbeat does not name them
any more; then it moves on and gets of its target what is free. Its epoch moves with every partition taken from it, so
one that has missed the news and reads on cannot commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from goqueue.core.group.consumer_events import (
    Assignment,
    MemberReconciled,
    MemberState,
    Partition,
    pack,
    unpack,
)


def reconcile(
    current: MemberReconciled,
    target: Assignment,
    target_epoch: int,
    *,
    owned: Assignment | None,
    is_held_by_others: Callable[[Partition], bool],
) -> MemberReconciled:
    """The same object where nothing changes. `owned` is what the member says it has; None is nothing new."""
    epoch = current.epoch
    if current.state is MemberState.COMPLETE and epoch == target_epoch:
        return current
    if current.state is MemberState.PENDING_REVOKE:
        if _owns_any(owned, unpack(current.revoking)):
            return current
        epoch += 1
    wanted = set(unpack(target))
    assigned = unpack(current.assigned)
    kept = [partition for partition in assigned if partition in wanted]
    revoking = [partition for partition in assigned if partition not in wanted]
    if revoking and _owns_any(owned, revoking):
        return _changed(current, epoch, MemberState.PENDING_REVOKE, kept, revoking)
    missing = wanted.difference(kept)
    free = [partition for partition in sorted(missing) if not is_held_by_others(partition)]
    state = MemberState.COMPLETE if len(free) == len(missing) else MemberState.PENDING_ASSIGN
    return _changed(current, target_epoch, state, kept + free, [])


def _owns_any(owned: Assignment | None, partitions: list[Partition]) -> bool:
    """A member that does not say what it has may have them all."""
    return owned is None or not set(partitions).isdisjoint(unpack(owned))


def _changed(
    current: MemberReconciled,
    epoch: int,
    state: MemberState,
    assigned: Iterable[Partition],
    revoking: Iterable[Partition],
) -> MemberReconciled:
    changed = msgspec.structs.replace(
        current,
        epoch=epoch,
        previous_epoch=current.epoch if epoch != current.epoch else current.previous_epoch,
        state=state,
        assigned=pack(assigned),
        revoking=pack(revoking),
    )
    return current if changed == current else changed
