"""The leader's side of replication: followers ask for what comes after what they have, and by asking say what they have.

A follower's requests over one connection are rounds of one session. What it wants of a partition is remembered until it wants
something else, so a round costs what has changed and not what there is: thousands of quiet partitions cost nothing but one look
every half a minute, which is when a follower hears of what nobody tells (where a log begins), or has forgotten. With a new
session everything that it said before is forgotten: it may come from a new process, on a disk that has nothing. So it is as soon
as the catalogue says that another process has started there, for that one may have no way to this node yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from goqueue.core.replica.replicas import UNKNOWN
from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import FetchSessionNotFound, GoQueueError, OffsetOutOfRange
from goqueue.node.cluster.ports import ReplicaFound, ReplicaRound, ReplicaWant
from goqueue.node.fetch import check_leader_epoch
from goqueue.node.monotonic import monotonic_ms
from goqueue.node.partition import Partition
from goqueue.node.replication.leadership import Leadership
from goqueue.node.topic_table import TopicTable

Place = tuple[str, int]
WhenBegun = Callable[[int, int], None]  # which follower, and when
_ENDED: Final = -2  # no round follows this one
_SWEEP_S: Final = 30.0


class _Session:
    """What one follower has asked for over one connection, and what there is to tell it."""

    def __init__(self, follower: int, stream: object, *, hurries: bool) -> None:
        """`hurries`: the follower hears at once what is committed."""
        self.follower = follower
        self.hurries = hurries
        self.stream = stream
        self.round = -1
        self.wants: dict[Place, ReplicaWant] = {}
        self.due: dict[Place, None] = {}  # to be looked at
        self.sent: dict[Place, None] = {}  # it has got records: it says what became of them
        self.watermarks: dict[
            Place, None
        ] = {}  # news that need not hurry, unless clients read from followers
        self.is_urgent = False  # what is among these
        self.told: dict[Place, int] = {}  # high watermarks: a quiet partition is not spoken of again
        self.starts_told: dict[Place, int] = {}  # at once, the first time
        self.swept_s = asyncio.get_running_loop().time()  # when all of them were told last
        self.waiting: asyncio.Future[None] | None = None

    def take(self, round: ReplicaRound) -> None:
        if round.number == 0:
            self._forget_all()
        elif round.number != self.round + 1:
            raise FetchSessionNotFound(f"round {round.number} does not follow round {self.round}")
        self.round = round.number
        for want in round.wants:
            place = want.topic, want.partition
            before = self.wants.get(place)
            if before is None or before.leader_epoch != want.leader_epoch or before.offset > want.offset:
                self.told.pop(place, None)
            self.wants[place] = want
            self.due[place] = None
            self.sent.pop(place, None)
        for place in round.forgotten:
            for known in (self.wants, self.due, self.sent, self.watermarks, self.told, self.starts_told):
                known.pop(place, None)
        self.wake()  # a request that waits has had its time

    def end(self) -> None:
        """Another one is in its place: whoever still waits in it gets nothing."""
        self.round = _ENDED
        self._forget_all()
        self.wake()

    def _forget_all(self) -> None:
        self.wants, self.due, self.sent, self.watermarks, self.told = {}, {}, {}, {}, {}
        self.starts_told, self.is_urgent = {}, False

    def note_told(self, found: Sequence[ReplicaFound]) -> None:
        for one in found:
            if one.error is None and one.diverging is None:
                self.told[one.topic, one.partition] = one.high_watermark

    def sweep(self, now_s: float) -> None:
        """Everything is told again from time to time."""
        if now_s - self.swept_s >= _SWEEP_S:
            self.swept_s = now_s
            self.watermarks |= dict.fromkeys(place for place in self.wants if place not in self.sent)

    def note(self, place: Place, *, has_more: bool) -> None:
        if place not in self.wants or place in self.sent:
            return
        if has_more:
            self.due[place] = None
            self.wake()
        else:
            self.watermarks[place] = None
            if self.hurries:
                self.is_urgent = True
                self.wake()

    def note_found(self, want: ReplicaWant, found: ReplicaFound) -> None:
        """There is nothing to send, but maybe something to tell."""
        place = want.topic, want.partition
        is_later = found.log_start > want.log_start
        if not is_later and found.high_watermark <= self.told.get(place, UNKNOWN):
            return
        self.watermarks[place] = None
        self.is_urgent |= self.hurries
        if is_later and found.log_start > self.starts_told.get(place, UNKNOWN):
            self.starts_told[place] = found.log_start
            self.is_urgent = True

    @property
    def has_urgent_news(self) -> bool:
        return self.is_urgent and bool(self.watermarks)

    def wake(self) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)


class ReplicaServer:
    def __init__(
        self,
        table: TopicTable,
        when_joinable: Callable[[Partition], None],
        when_begun: WhenBegun,
        *,
        hurries: bool = False,
    ) -> None:
        """`when_joinable`: a follower has caught up that is not in sync; `when_begun`: one begins a session. `hurries`:
        followers hear at once what is committed, because clients read from them."""
        self._table = table
        self._hurries = hurries
        self._when_joinable = when_joinable
        self._when_begun = when_begun
        self._sessions: dict[int, list[_Session]] = {}
        self.heard_ms: dict[int, int] = {}  # when each follower asked last
        self.sent_bytes = 0  # of batches, to followers

    def changed(self, partition: Partition, followers: tuple[int, ...], has_more: bool) -> None:
        """There is more to fetch, or more is committed."""
        place = partition.topic, partition.index
        for number in followers:
            for session in self._sessions.get(number, ()):
                session.note(place, has_more=has_more)

    async def fetch(
        self, follower: int, round: ReplicaRound, *, wait_ms: int, bytes_max: int, stream: object
    ) -> list[ReplicaFound]:
        """What there is to say: at once if there is something, else when there is, or the time is up, or the next round of the
        same stream has come."""
        self.heard_ms[follower] = monotonic_ms()
        session = self._session(follower, round, stream)
        session.take(round)
        if round.number == 0:
            self._begin(session)
        self._note_positions(follower, round)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1_000
        while True:
            found = await self._look(session, round.number, bytes_max)
            is_over = session.round != round.number or loop.time() >= deadline
            if found or session.has_urgent_news or is_over:
                session.sweep(loop.time())
                found += await self._tell_watermarks(session, round.number)
                session.note_told(found)
                self.sent_bytes += sum(len(one.records) for one in found)
                return found
            await self._until_told(session, deadline)

    def end(self, follower: int, stream: object) -> None:
        """The connection is gone."""
        sessions = self._sessions.get(follower, [])
        self._sessions[follower] = [one for one in sessions if one.stream is not stream]

    def end_all(self, follower: int) -> None:
        """Another process runs there now. It begins a session anew, even if it already had one that is ended here, and says where it is
        also of what is quiet; what the one before said must not count any more."""
        for session in self._sessions.pop(follower, ()):
            session.end()
        self._when_begun(follower, monotonic_ms())

    def _session(self, follower: int, round: ReplicaRound, stream: object) -> _Session:
        for session in self._sessions.get(follower, ()):
            if session.stream is stream:
                return session
        if round.number:
            raise FetchSessionNotFound("this connection has no session yet; begin one")
        session = _Session(follower, stream, hurries=self._hurries)
        self._sessions.setdefault(follower, []).append(session)
        return session

    def _begin(self, session: _Session) -> None:
        """Sessions over connections that the follower has given up must not say any more where it is."""
        for other in self._sessions[session.follower]:
            if other is not session:
                other.end()
        self._sessions[session.follower] = [session]
        self._when_begun(session.follower, monotonic_ms())

    def _note_positions(self, follower: int, round: ReplicaRound) -> None:
        """Where it is everywhere, before anything is served: that takes its time."""
        for want in round.wants:
            with suppress(GoQueueError):  # it is told so when it is served
                partition = self._table.any_partition(want.topic, want.partition)
                if partition.is_led:
                    self._note_position(follower, partition, want)

    def _note_position(
        self, follower: int, partition: Partition, want: ReplicaWant
    ) -> tuple[int, int] | None:
        """Unless its log is another from some offset on: in which epoch, and where that ends here."""
        leadership = self._leadership(partition, follower)
        check_leader_epoch(partition, want.leader_epoch)
        log = partition.log
        if want.offset < log.log_start:
            raise OffsetOutOfRange(want.offset, earliest=log.log_start, latest=log.end)
        diverging = log.epochs.diverging(want.last_epoch, want.offset, log.end)
        if diverging is None:
            leadership.fetched(follower, partition, want.offset, monotonic_ms(), log_start=want.log_start)
            if leadership.replicas.may_join(follower):
                self._when_joinable(partition)
        return diverging

    async def _look(self, session: _Session, number: int, bytes_max: int) -> list[ReplicaFound]:
        """At whatever may have something; what there is no room for stays to be looked at."""
        found: list[ReplicaFound] = []
        left = bytes_max
        while session.due and left > 0 and session.round == number:
            place = next(iter(session.due))
            del session.due[place]
            want = session.wants[place]
            one = await self._serve(session, want, left)
            if session.wants.get(place) is not want:
                continue  # it wants something else by now
            if one.records or one.error is not None or one.diverging is not None:
                session.sent[place] = None
                session.watermarks.pop(place, None)
                left -= len(one.records)
                found.append(one)
            else:
                session.note_found(want, one)
        return found

    async def _tell_watermarks(self, session: _Session, number: int) -> list[ReplicaFound]:
        if session.round != number:  # the next round tells
            return []
        places, session.watermarks, session.is_urgent = session.watermarks, {}, False
        wants = [session.wants[place] for place in places if place in session.wants]
        return [await self._serve(session, want, 0) for want in wants]

    async def _until_told(self, session: _Session, deadline: float) -> None:
        if session.due or session.has_urgent_news:
            return
        waiting = session.waiting = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout_at(deadline):
                await waiting
        except TimeoutError:
            pass
        finally:
            if session.waiting is waiting:
                session.waiting = None

    async def _serve(self, session: _Session, want: ReplicaWant, left: int) -> ReplicaFound:
        found = ReplicaFound(want.topic, want.partition)
        try:
            await self._fill(found, session, want, left)
        except GoQueueError as error:
            found.error = error
        return found

    async def _fill(self, found: ReplicaFound, session: _Session, want: ReplicaWant, left: int) -> None:
        partition = self._table.any_partition(want.topic, want.partition)
        leadership = self._leadership(partition, session.follower)
        check_leader_epoch(partition, want.leader_epoch)
        if not partition.is_led:
            await partition.lead()
        log = partition.log
        found.log_start = log.log_start
        found.high_watermark = log.high_watermark
        if session.wants.get((want.topic, want.partition)) is not want:
            return  # it is somewhere else by now
        found.diverging = self._note_position(session.follower, partition, want)
        if found.diverging is not None:
            return
        found.high_watermark = log.high_watermark
        if want.offset < log.end and left > 0:
            part = await partition.read(
                want.offset, end=log.end, bytes_max=min(want.bytes_max, left), is_own=True
            )
            if (
                partition.leadership is not leadership
            ):  # it may have been cut, and have got what another leader has written
                raise NotLeader(partition.topic, partition.index, partition.leader)
            found.records = b"".join([batch.data for batch in part.batches])

    def _leadership(self, partition: Partition, follower: int) -> Leadership:
        leadership = partition.leadership
        if not isinstance(leadership, Leadership):
            raise NotLeader(partition.topic, partition.index, partition.leader)
        if follower not in leadership.replicas.state.replicas:
            raise NotLeader(partition.topic, partition.index)
        return leadership
