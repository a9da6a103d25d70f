"""Incremental fetch sessions (KIP-227): the broker remembers what a client reads, and each request and answer names only
the partitions that have changed.

A session is a convenience for its client and nothing is lost with one: a client that is told it does not exist (any
more) sends everything again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from goqueue.model.errors import FetchSessionNotFound, InvalidFetchSessionEpoch
from goqueue.node.fetch import Fetched, Wanted
from goqueue.node.follower_reads import NOBODY

NO_SESSION = 0
_FINAL_EPOCH = -1  # no session from now on
_INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1
SESSION_COUNT_MAX = 1_000
PARTITION_COUNT_MAX = 200_000  # of all sessions together

Place = tuple[str, int]


@dataclass(slots=True)
class _Remembered:
    wanted: Wanted
    seen: tuple[int, int, int] | None = None  # watermarks and log start that the client was told last


@dataclass(slots=True)
class Session:
    id: int
    epoch: int = 1
    # In the order in which they are served: one that gave data goes to the end, so that all get their turn.
    partitions: dict[Place, _Remembered] = field(default_factory=dict)

    def wanted(self) -> list[Wanted]:
        return [one.wanted for one in self.partitions.values()]

    def changed(self, asked: Iterable[Wanted], fetched: Iterable[Fetched]) -> list[tuple[Wanted, Fetched]]:
        """What the client must hear of what it asked for. The session may have changed meanwhile, by a request on another
        connection: what it has forgotten is no news."""
        news: list[tuple[Wanted, Fetched]] = []
        for want, found in zip(asked, fetched, strict=True):
            place = (want.topic, want.partition)
            one = self.partitions.get(place)
            if one is None:
                continue
            facts = (found.high_watermark, found.last_stable_offset, found.log_start)
            is_refused = found.error is not None or found.closest != NOBODY
            if not is_refused and not found.size_bytes and facts == one.seen:
                continue
            one.seen = None if is_refused else facts
            if found.size_bytes:
                self.partitions[place] = self.partitions.pop(place)
            news.append((want, found))
        return news


class FetchSessions:
    """`new_id` gives numbers that cannot be guessed: whoever knows a session's may change what it reads."""

    def __init__(self, new_id: Callable[[], int]) -> None:
        self._sessions: dict[int, Session] = {}  # in the order of their last use
        self._new_id = new_id
        self._partition_count = 0

    def begin(self, id: int, epoch: int, wanted: list[Wanted], forgotten: Iterable[Place]) -> Session | None:
        """The session that a request belongs to, brought up to date; None for a request that stands alone."""
        if epoch in (_FINAL_EPOCH, _INITIAL_EPOCH):
            self._forget(id)
            return None if epoch == _FINAL_EPOCH else self._create(wanted)
        session = self._sessions.get(id)
        if session is None:
            raise FetchSessionNotFound(
                f"fetch session {id} does not exist; send a full request", session_id=id
            )
        if epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                f"fetch session {id} is at epoch {session.epoch}, not {epoch}; send a full request",
                session_id=id,
                epoch=epoch,
            )
        if self._partition_count + len(wanted) > PARTITION_COUNT_MAX:
            self._forget(id)
            raise FetchSessionNotFound(
                f"fetch session {id} has grown too large; send a full request", session_id=id
            )
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        self._sessions[id] = self._sessions.pop(id)
        self._update(session, wanted, forgotten)
        return session

    def _create(self, wanted: list[Wanted]) -> Session | None:
        """None if there is no room: the client then sends full requests, as those do who know nothing of sessions."""
        if not wanted or len(wanted) > PARTITION_COUNT_MAX:
            return None
        while self._sessions and (
            len(self._sessions) >= SESSION_COUNT_MAX
            or self._partition_count + len(wanted) > PARTITION_COUNT_MAX
        ):
            self._forget(next(iter(self._sessions)))
        session = Session(self._free_id())
        self._sessions[session.id] = session
        self._update(session, wanted, ())
        return session

    def _free_id(self) -> int:
        while True:
            id = self._new_id() % _EPOCH_MAX + 1
            if id not in self._sessions:
                return id

    def _update(self, session: Session, wanted: list[Wanted], forgotten: Iterable[Place]) -> None:
        before = len(session.partitions)
        for one in wanted:
            place = (one.topic, one.partition)
            known = session.partitions.get(place)
            if known is None:
                session.partitions[place] = _Remembered(one)
            else:
                known.wanted = one
        for place in forgotten:
            session.partitions.pop(place, None)
        self._partition_count += len(session.partitions) - before

    def _forget(self, id: int) -> None:
        session = self._sessions.pop(id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)
