"""What the leader of a partition knows of its followers: how far each has come in every log of the partition, what is
committed, and whether the in-sync set should change.

A follower's offset means that everything before it is on its disk, and the leader counts what is on its own: a leader that
loses its power and leads again must not lack what somebody was shown. The high watermark of a log is the smallest of these in
the in-sync set, with those counted in whose joining has been proposed, for the controller may have let them in already. It
moves only while enough are in sync: then whoever leaves the set with everything that is committed may lead one day
(KIP-966). The set itself changes only when the controller says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from goqueue.core.cluster.partitions import PartitionState, ordered

UNKNOWN = -1


@dataclass(slots=True)
class _Log:
    """One log of the partition. `epoch_start` is where this leader began to write."""

    end: int
    durable_end: int
    epoch_start: int
    high_watermark: int
    added_ms: int
    start_min: int  # what is before it was deleted by request, and must not come back


@dataclass(slots=True)
class _Follower:
    offsets: dict[str, int] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)  # where its logs begin
    ends_seen: dict[str, int] = field(default_factory=dict)  # the leader's ends when it fetched last
    caught_up_ms: dict[str, int] = field(default_factory=dict)
    fetched_ms: dict[str, int] = field(default_factory=dict)
    has_left: bool = False  # the set, and has not been heard of since: where it was then says nothing
    left_ms: int | None = None  # when it had last been heard of by then


class Replicas:
    """Of one leadership: with a new leader epoch there is a new one of these. Logs are known by name."""

    def __init__(self, me: int, state: PartitionState, *, min_in_sync: int, now_ms: int) -> None:
        self._me = me
        self._min_in_sync = min_in_sync
        self._began_ms = now_ms
        self._logs: dict[str, _Log] = {}
        self._expected: tuple[str, ...] = ()
        self._followers: dict[int, _Follower] = {}
        self._pending: tuple[int, ...] | None = None
        self._asked_ms: int | None = None
        self.state = state
        self.update(state, min_in_sync=min_in_sync)

    def update(self, state: PartitionState, *, min_in_sync: int) -> None:
        """The controller has changed the partition, but not who leads it."""
        left = [number for number in self.state.in_sync if number not in state.in_sync]
        if state.epoch != self.state.epoch:  # told the same again, it says nothing about what was proposed
            self._pending = self._asked_ms = None
        self.state = state
        self._min_in_sync = min_in_sync
        others = [number for number in state.replicas if number != self._me]
        for number in left:
            if number in self._followers:
                self._followers[number].has_left, self._followers[number].left_ms = True, None
        self._followers = {number: self._followers.get(number) or _Follower() for number in others}

    # ---------------------------------------------------------------- what happens

    def expect(self, names: Collection[str]) -> None:
        """All logs of the partition. Until each was added nobody can be said to have everything."""
        self._expected = tuple(names)

    @property
    def is_complete(self) -> bool:
        return bool(self._logs) and all(name in self._logs for name in self._expected)

    def add_log(
        self, name: str, *, end: int, durable_end: int, high_watermark: int, now_ms: int, start: int = 0
    ) -> None:
        """`start` is where it begins: the leader before may have promised it."""
        self._logs[name] = _Log(end, durable_end, end, high_watermark, now_ms, start)

    def deleted(self, name: str, start: int) -> None:
        """The leader has deleted what is before `start`, for good, and is to promise that."""
        log = self._logs[name]
        log.start_min = max(log.start_min, start)

    def appended(self, name: str, end: int) -> None:
        self._logs[name].end = end

    def synced(self, name: str, durable_end: int) -> None:
        """The leader has everything before it on its own disk."""
        self._logs[name].durable_end = durable_end

    def fetched(self, follower: int, name: str, offset: int, now_ms: int, *, log_start: int = 0) -> None:
        """It asks for what comes at `offset`, so it has everything before, from `log_start` on."""
        one, log = self._followers.get(follower), self._logs.get(name)
        if one is None or log is None:
            return
        if offset >= log.end:
            one.caught_up_ms[name] = now_ms
        elif offset >= one.ends_seen.get(name, log.end + 1):  # it has all that there was when it asked last
            one.caught_up_ms[name] = one.fetched_ms[name]
        one.has_left = False
        one.offsets[name] = offset
        one.starts[name] = log_start
        one.ends_seen[name] = log.end
        one.fetched_ms[name] = now_ms

    def began_anew(self, follower: int, now_ms: int) -> None:
        """It has no connection from before. What it said it may have said in another life, of a disk that is gone."""
        one = self._followers.get(follower)
        if one is None:
            return
        for name, log in self._logs.items():
            if one.offsets.get(name, UNKNOWN) >= log.end:
                one.caught_up_ms[name] = now_ms  # if it was in sync it has its time to say so again
        one.offsets, one.starts, one.ends_seen = {}, {}, {}

    # ---------------------------------------------------------------- what follows

    @property
    def min_in_sync(self) -> int:
        """How many must have a record before it counts as committed; never more than there are."""
        return min(self._min_in_sync, len(self.state.replicas))

    @property
    def is_replicated(self) -> bool:
        return len(self.state.replicas) > 1

    @property
    def has_enough(self) -> bool:
        """While somebody is eligible nothing more is committed: whoever left the set must go on having all that is."""
        return len(self.state.in_sync) >= self.min_in_sync and not self.state.eligible

    def is_stuck(self, heard_ms: Mapping[int, int], oldest_ms: int) -> bool:
        """As long as the set stays as it is nothing is committed: it is too small, or one of it has not been heard of."""
        others = [number for number in self.state.in_sync if number != self._me]
        return not self.has_enough or any(
            max(heard_ms.get(number, UNKNOWN), self._began_ms) < oldest_ms for number in others
        )

    def high_watermark(self, name: str) -> int:
        """Of one log; never goes back."""
        log = self._logs[name]
        if self.has_enough:
            offsets = [
                self._followers[number].offsets.get(name, UNKNOWN)
                for number in self._maximal()
                if number != self._me
            ]
            # A log that is nowhere else is shown before it is on disk, as by a node that is alone.
            own = log.durable_end if self.is_replicated else log.end
            log.high_watermark = max(log.high_watermark, min([own, *offsets]))
        return log.high_watermark

    def start(self, name: str) -> int:
        """Where the log begins on the disk of everybody who may lead next, at least; UNKNOWN while that is not known."""
        if not self.has_enough:
            return UNKNOWN
        starts = [
            self._followers[number].starts.get(name, UNKNOWN)
            for number in self._maximal()
            if number != self._me
        ]
        return min(starts, default=self._logs[name].start_min)

    def proposal(
        self,
        now_ms: int,
        *,
        heard_ms: Mapping[int, int],
        lag_ms_max: int,
        retry_ms: int,
        fenced: Collection[int] = (),
        resigns: bool = False,
    ) -> tuple[int, ...] | None:
        """The in-sync set as it should be, if the controller has to be asked. Asked again only after a while. `heard_ms` says
        when each node was last heard of: one that has everything need not say so of every partition. Nobody who is `fenced` is
        proposed to join: that would be refused, and not asked again for a while. `resigns`: the leader's own disk has
        failed, and another is to lead if there is one."""
        if self._asked_ms is not None and now_ms - self._asked_ms < retry_ms:
            return None
        if not self.is_complete and not resigns:
            return None
        oldest_ms = now_ms - lag_ms_max
        belonging = [number for number in self.state.replicas if self._belongs(number, heard_ms, oldest_ms)]
        wanted = tuple(number for number in belonging if number not in fenced or number in self.state.in_sync)
        if resigns and len(wanted) > 1:
            wanted = tuple(number for number in wanted if number != self._me)
        if set(wanted) == set(self.state.in_sync) and self._pending is None:
            self._asked_ms = None
            return None
        # Of what was proposed before there has been no answer, or it would not be pending: whoever was to join may have.
        self._pending = ordered(self.state.replicas, {*wanted, *(self._pending or ())})
        self._asked_ms = now_ms
        return wanted

    def refused(self) -> None:
        """The controller does not want it so, and has not counted the epoch up, as earlier versions do it: nobody has to be waited for who is
        not in the set. Asked again after a while."""
        self._pending = None

    def unanswered(self) -> None:
        """Nobody knows what became of it, so whoever was to join is still waited for. It may be asked for again at once."""
        self._asked_ms = None

    def may_join(self, follower: int) -> bool:
        """It is not in sync and has caught up: worth a proposal now."""
        return (
            follower in self._followers
            and follower not in self.state.in_sync
            and self._asked_ms is None
            and self._has_caught_up(self._followers[follower])
        )

    def readable_at(self, name: str, offset: int) -> list[int]:
        """Followers in sync whose log has `offset`, or ends there, so that what comes next is there soon."""
        return [
            number
            for number in self.state.in_sync
            if (one := self._followers.get(number)) is not None
            and one.starts.get(name, 0) <= offset <= one.offsets.get(name, UNKNOWN)
        ]

    def lags(self) -> Mapping[int, int]:
        """How many records each follower is behind, over all logs."""
        return {
            number: sum(log.end - max(one.offsets.get(name, 0), 0) for name, log in self._logs.items())
            for number, one in self._followers.items()
        }

    def lag_ms(self, now_ms: int, heard_ms: Mapping[int, int]) -> int:
        """How long ago the follower that is furthest behind had everything in every log; one that has not said where it is, since this
        node leads."""
        return now_ms - min(
            (
                self._caught_up_ms(one, name, log, heard_ms.get(number, self._began_ms))
                for number, one in self._followers.items()
                for name, log in self._logs.items()
            ),
            default=now_ms,
        )

    def _maximal(self) -> Collection[int]:
        members = [number for number in self.state.in_sync if number == self._me or number in self._followers]
        joining = [number for number in self._pending or () if number not in members]
        return members + joining

    def _belongs(self, number: int, heard_ms: Mapping[int, int], oldest_ms: int) -> bool:
        if number == self._me:
            return True
        one = self._followers[number]
        if number not in self.state.in_sync:
            heard_ms_last = heard_ms.get(number, UNKNOWN)
            return (
                self._is_back(one, heard_ms_last) and heard_ms_last >= oldest_ms and self._has_caught_up(one)
            )
        return all(
            self._caught_up_ms(one, name, log, heard_ms.get(number, self._began_ms)) >= oldest_ms
            for name, log in self._logs.items()
        )

    def _caught_up_ms(self, one: _Follower, name: str, log: _Log, heard_ms: int) -> int:
        if one.offsets.get(name, UNKNOWN) >= log.end:
            return max(heard_ms, log.added_ms)
        return max(one.caught_up_ms.get(name, 0), log.added_ms)

    def _is_back(self, one: _Follower, heard_ms: int) -> bool:
        """Or never was away. One that died with everything still has everything, and would be waited for for ever."""
        if one.has_left and one.left_ms is None:
            one.left_ms = heard_ms
        if one.has_left and one.left_ms is not None and heard_ms > one.left_ms:
            one.has_left = False
        return not one.has_left

    def _has_caught_up(self, one: _Follower) -> bool:
        """With everything that may be committed, also what the leader before had, whose high watermark is not known; and without what
        was deleted by request."""
        return self.is_complete and all(
            one.offsets.get(name, UNKNOWN) >= max(log.high_watermark, log.epoch_start)
            and one.starts.get(name, UNKNOWN) >= log.start_min
            for name, log in self._logs.items()
        )
