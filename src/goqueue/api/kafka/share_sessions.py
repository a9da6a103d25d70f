"""Share sessions (KIP-932): the broker remembers which partitions a member reads, so that a request names only those that
have changed. Unlike a fetch session it belongs to a member and lives on its connection: with it the member's hold on
what it has got ends, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from goqueue.api.kafka.call import Closing
from goqueue.model.errors import InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound

OPENING_EPOCH = 0
CLOSING_EPOCH = -1
_EPOCH_MAX = 2**31 - 1
SESSION_COUNT_MAX = 2_000  # Kafka's group.share.max.share.sessions
PARTITION_COUNT_MAX = 200_000  # of all sessions together

Spot = tuple[bytes, int]  # id of a topic, partition


class Member(NamedTuple):
    group_id: str
    member_id: str


@dataclass(slots=True)
class ShareSession:
    closing: Closing  # of its connection
    epoch: int = 1  # of the next request
    # In the order in which they are served: one that gave something goes to the end, so that all get their turn.
    spots: dict[Spot, None] = field(default_factory=dict)

    def served(self, spot: Spot) -> None:
        """The session may have changed meanwhile."""
        if spot in self.spots:
            del self.spots[spot]
            self.spots[spot] = None


class ShareSessions:
    def __init__(self, when_lost: Callable[[Member], None]) -> None:
        """`when_lost` is called for a member whose connection ends."""
        self._sessions: dict[Member, ShareSession] = {}
        self._when_lost = when_lost
        self._spot_count = 0

    def open(self, member: Member, spots: Iterable[Spot], closing: Closing) -> ShareSession:
        """Anew: what the member read before is forgotten."""
        self.close(member)
        if len(self._sessions) >= SESSION_COUNT_MAX:
            raise ShareSessionLimitReached(
                f"{len(self._sessions)} share sessions are open, which is the limit; close some or try again later",
                session_count_max=SESSION_COUNT_MAX,
            )
        session = ShareSession(closing)
        self._update(session, spots, ())
        self._sessions[member] = session
        closing.add(member, lambda: self._lose(member))
        return session

    def find(self, member: Member, epoch: int) -> ShareSession:
        """The one that a request belongs to. The closing epoch fits every session."""
        session = self._sessions.get(member)
        if session is None:
            raise ShareSessionNotFound(
                f"member {member.member_id!r} of group {member.group_id!r} has no share session; open one with epoch 0",
                member_id=member.member_id,
            )
        if epoch not in (session.epoch, CLOSING_EPOCH):
            raise InvalidShareSessionEpoch(
                f"the share session of member {member.member_id!r} is at epoch {session.epoch}, not {epoch}; open a new "
                "one with epoch 0",
                epoch=epoch,
                current=session.epoch,
            )
        return session

    def is_open(self, member: Member, session: ShareSession) -> bool:
        """Whether it is still the member's."""
        return self._sessions.get(member) is session

    def advance(
        self, member: Member, epoch: int, spots: Iterable[Spot] = (), forgotten: Iterable[Spot] = ()
    ) -> ShareSession:
        session = self.find(member, epoch)
        self._update(session, spots, forgotten)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def close(self, member: Member) -> bool:
        """Whether there was one."""
        session = self._sessions.pop(member, None)
        if session is None:
            return False
        session.closing.drop(member)  # the member may come back on another connection before this one ends
        self._spot_count -= len(session.spots)
        return True

    def _lose(self, member: Member) -> None:
        self.close(member)
        self._when_lost(member)

    def _update(self, session: ShareSession, spots: Iterable[Spot], forgotten: Iterable[Spot]) -> None:
        after = session.spots | dict.fromkeys(spots)
        for spot in forgotten:
            after.pop(spot, None)
        count = self._spot_count + len(after) - len(session.spots)
        if count > PARTITION_COUNT_MAX:
            raise ShareSessionLimitReached(
                f"share sessions hold {count} partitions, more than {PARTITION_COUNT_MAX}; read fewer topics",
                partition_count_max=PARTITION_COUNT_MAX,
            )
        self._spot_count = count
        session.spots = after
