"""What the heartbeat of a share group's member must look like, before and after the member is known. The rules are
Kafka's, but that a member which joins without an id is given one."""

from __future__ import annotations

from goqueue.core.group.config import GroupConfig, check_session_timeout
from goqueue.core.group.consumer_events import JOIN_EPOCH, LEAVE_EPOCH
from goqueue.core.group.share_events import ShareHeartbeat, ShareMemberSaved
from goqueue.model.errors import FencedMemberEpoch, InvalidRequest, LimitExceeded
from goqueue.model.names import check_topic_name

_ID_LENGTH_MAX = 1_000


def check_form(command: ShareHeartbeat, config: GroupConfig) -> None:
    if command.member_epoch < LEAVE_EPOCH:
        raise InvalidRequest(
            f"{command.member_epoch} is no member epoch: {JOIN_EPOCH} joins, {LEAVE_EPOCH} leaves",
            member_epoch=command.member_epoch,
        )
    joins = command.member_epoch == JOIN_EPOCH
    if not (command.member_id or (joins and command.fresh_id)):
        raise InvalidRequest("a heartbeat names its member; this member id is empty")
    for name, id in (("member", command.member_id), ("rack", command.rack_id)):
        if id is not None and len(id) > _ID_LENGTH_MAX:
            raise InvalidRequest(f"a {name} id has at most {_ID_LENGTH_MAX} characters, not {len(id)}")
    if command.rack_id == "":
        raise InvalidRequest("the rack id is empty; leave it out or give one")
    if joins and not command.subscribed_topics:
        raise InvalidRequest("a member that joins names the topics it subscribes to; there are none")
    check_session_timeout(command.session_timeout_ms, config)
    _check_topics(command.subscribed_topics or (), config.share_topic_count_max)


def _check_topics(topics: tuple[str, ...], count_max: int) -> None:
    if len(topics) > count_max:
        raise LimitExceeded(
            f"a member of a share group subscribes to at most {count_max} topics, not {len(topics)}",
            topic_count=len(topics),
            topic_count_max=count_max,
        )
    for topic in topics:
        check_topic_name(topic)


def check_member_epoch(member: ShareMemberSaved, epoch: int) -> None:
    """The epoch that a member had when it last changed may be all that it knows: the answer with the new one got lost.
    Nobody acts in the epoch that joins."""
    if epoch == member.epoch or epoch == member.previous_epoch != JOIN_EPOCH:
        return
    raise FencedMemberEpoch(
        f"member {member.member_id!r} is at epoch {member.epoch}, not {epoch}; it must join again with epoch "
        f"{JOIN_EPOCH}",
        member_id=member.member_id,
        member_epoch=epoch,
        expected_epoch=member.epoch,
    )
