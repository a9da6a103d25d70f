"""What a heartbeat must look like, before and after its member is known. The rules are Kafka's."""

from __future__ import annotations

from goqueue.core.group.assignors import ASSIGNORS
from goqueue.core.group.consumer_events import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeat,
    MemberReconciled,
    unpack,
)
from goqueue.model.errors import FencedMemberEpoch, InvalidRequest, UnsupportedAssignor


def check_form(command: ConsumerHeartbeat) -> None:
    if not command.group_id:
        raise InvalidRequest("a heartbeat names its group; this group id is empty")
    for name, value in (("instance", command.instance_id), ("rack", command.rack_id)):
        if value == "":
            raise InvalidRequest(f"the {name} id is empty; leave it out or give one")
    if command.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequest(
            f"{command.member_epoch} is no member epoch: 0 joins, -1 leaves, -2 is a static member that will be back",
            member_epoch=command.member_epoch,
        )
    if command.rebalance_timeout_ms < -1:
        raise InvalidRequest(
            f"a rebalance timeout of {command.rebalance_timeout_ms} ms is less than none",
            rebalance_timeout_ms=command.rebalance_timeout_ms,
        )
    if command.member_epoch == JOIN_EPOCH:
        _check_joining(command)
    elif not command.member_id:
        raise InvalidRequest("only a member that joins may leave its id empty")
    if command.member_epoch == LEAVE_STATIC_EPOCH and command.instance_id is None:
        raise InvalidRequest("only a static member leaves with epoch -2; the instance id is missing")
    if command.assignor is not None and command.assignor not in ASSIGNORS:
        raise UnsupportedAssignor(
            f"there is no assignor {command.assignor!r}; there are {', '.join(sorted(ASSIGNORS))}",
            assignor=command.assignor,
            supported=sorted(ASSIGNORS),
        )


def _check_joining(command: ConsumerHeartbeat) -> None:
    if command.rebalance_timeout_ms == -1:
        raise InvalidRequest("a member that joins gives its rebalance timeout")
    if command.owned is None or unpack(command.owned):
        raise InvalidRequest("a member that joins owns no partition and says so with an empty list")
    if command.subscribed_topics is None and command.subscribed_regex is None:
        raise InvalidRequest("a member that joins subscribes to topics, by name or by pattern")
    if not (command.member_id or command.fresh_id):
        raise InvalidRequest("a member needs an id")


def check_epoch(current: MemberReconciled, command: ConsumerHeartbeat) -> None:
    """The epoch before the member's own is taken if the member has nothing but what it is assigned: the answer with
    the new epoch got lost. One that joins again has abandoned everything, so it may always."""
    if command.member_epoch in (JOIN_EPOCH, current.epoch):
        return
    if (
        command.member_epoch < current.epoch
        and command.member_epoch == current.previous_epoch
        and command.owned is not None
        and set(unpack(command.owned)).issubset(unpack(current.assigned))
    ):
        return
    raise FencedMemberEpoch(
        f"member {current.member_id!r} is at epoch {current.epoch}, not {command.member_epoch}; it must abandon its "
        f"partitions and join again with epoch 0",
        member_id=current.member_id,
        member_epoch=command.member_epoch,
        expected_epoch=current.epoch,
    )
