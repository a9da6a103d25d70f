"""The ledger of one partition: who holds what, over the log that says so, with what is read ahead for each group."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from goqueue.core.lease.damage import Damage, Met
from goqueue.core.lease.decisions import open_group
from goqueue.core.lease.events import (
    Change,
    Closed,
    Event,
    Leased,
    Moving,
    Postponed,
    Settled,
    SnapshotBegan,
    SnapshotEnded,
    Sought,
    Target,
    Trimmed,
    decode,
    encode,
)
from goqueue.core.lease.ledger import Ledger
from goqueue.core.lease.window import Window
from goqueue.model.cluster_errors import NotLeader, ReplicationUnknown
from goqueue.model.errors import CoordinatorNotAvailable, InvariantViolation
from goqueue.node.clock import Clock
from goqueue.node.owned_state import OwnedState
from goqueue.node.partition import Partition
from goqueue.node.queue.feed import Feed, Postings
from goqueue.node.queue.waiting import Finishing, Waiting
from goqueue.node.state_log import StateLog, available
from goqueue.node.tenure import Tenure

_KEY = b"e"  # the log is trimmed by snapshots, not compacted
_SNAPSHOT_BYTES_MIN = 4 * 1024 * 1024  # of log since the last snapshot
_SNAPSHOT_RATIO = 4  # and that many times its size


class LedgerCodec:
    def encode(self, event: Event) -> tuple[bytes, bytes | None]:
        return _KEY, encode(event)

    def decode(self, key: bytes, value: bytes | None) -> Event:
        if value is None:
            raise InvariantViolation("an event of a ledger without content")
        return decode(value)


class OwnedLedger(OwnedState[Ledger, Event]):
    """`source` is the partition that groups read, `home` the one that holds the events. It counts for one tenure: NotLeader
    is raised by whatever would write, or say that something is written, when that is over."""

    def __init__(self, source: Partition, home: Partition, postings: Postings, clock: Clock) -> None:
        super().__init__("ledger", StateLog(home, LedgerCodec(), clock, source.leadership), Ledger())
        self.source = source
        self.tenure = Tenure(source, home)
        self._predecessors_end: int | None = (
            source.log.end
        )  # None once everything before it is known to be committed
        self.filling = asyncio.Lock()
        self._home = home
        self._clock = clock
        self.postings = postings
        self._feeds: dict[int, Feed] = {}
        self._waiting: dict[int, Waiting] = {}  # by window
        self.finishing = Finishing()
        self._snapshot_bytes = 0
        self._written_bytes = 0  # since the last snapshot
        self._snapshot_start: int | None = None  # where that begins
        self._began: int | None = None  # a snapshot that is being replayed
        self._trim_start: int | None = None  # where the one before it begins
        self._is_mended = False  # and not written yet

    async def begin(self, group_id: str, *, from_latest: bool = False) -> Window:
        """The window of a group that may be new here. One that begins at the end is sure of both before anybody hears of
        it: of that end, or after a power cut it would stand behind it and never get what came in place of what was lost,
        and of its place, or it would begin at a later end and never get what came before that."""
        await self.ready()
        if from_latest and self.state.find(group_id) is None:
            end = self.source.last_stable_offset
            await self.source.settled(end, under=self.tenure.leadership)
            await self.ready()
            window = self.window(group_id, end)
            await self.settled()
            return window
        return self.window(group_id)

    def window(self, group_id: str, start: int | None = None) -> Window:
        """Of a group; its first look at the partition is an event, too. It begins with the log if nothing else is said."""
        window = self.state.find(group_id)
        if window is None:
            start = self.source.log.log_start if start is None else start
            self.carry_out(open_group(self.state, group_id, start).events)
            window = self.state.windows[self.state.numbers[group_id]]
        return window

    async def open(self) -> None:
        if self.source.is_solo:
            self._predecessors_end = None
        await self._log.replay(self._replay, self._interrupt)

    @property
    def is_caught_up(self) -> bool:
        """Whether a leader that has just begun knows that what its predecessor gave is committed."""
        if self._predecessors_end is not None and self.source.log.high_watermark >= self._predecessors_end:
            self._predecessors_end = None
        return self._predecessors_end is None

    async def catch_up(self) -> None:
        """Until then nothing can be given: what was leased may not be readable yet, and must not pass for lost."""
        if self._predecessors_end is not None and not self.is_caught_up:
            with available("ledger"):
                await self.source.settled(self._predecessors_end, under=self.tenure.leadership)
            self.tenure.check()
            self._predecessors_end = None

    def _replay(self, event: Event) -> None:
        self.state.apply(event)
        match event:
            case SnapshotBegan():
                self._began = self._log.replayed_offset
            case SnapshotEnded() if self._began is not None:
                self._snapshot_start = self._began
            case _:
                pass

    def _interrupt(self, lost_count: int) -> None:
        self.state.interrupt(lost_count)
        self._began = self._snapshot_start = None

    def cut(self) -> bool:
        """The partition may have lost its end to damage: whether anything was known of that."""
        if self.state.cut(self.source.log.end):
            self._is_mended = True
            return True
        return False

    def mend(
        self, damage: Damage, found: Sequence[Met] | None, sequences: Mapping[Target, int], now_ms: int
    ) -> int:
        """How many records come again because events were lost. It is written before anything else is."""
        self._is_mended = True
        return self.state.mend(damage, found, sequences, now_ms)

    async def ready(self) -> None:
        self.tenure.check()
        await super().ready()
        await self.catch_up()
        self.tenure.check()
        if self._is_mended:
            self._save_snapshot()
            self._is_mended = False

    async def settled(self, *, gives_up: bool = False) -> None:
        """As long as it takes. Who is not told because the tenure ends has to ask the next leader what became of it: what was
        written may count."""
        try:
            await super().settled(gives_up=gives_up)
            self.tenure.check()
        except NotLeader as error:
            raise ReplicationUnknown(
                f"{error.sentence}; whether the last changes count is not known", **error.details
            ) from error

    def feed(self, window: Window) -> Feed:
        feed = self._feeds.get(window.number)
        if feed is None:
            feed = self._feeds[window.number] = Feed(self.source, self.postings)
        feed.move_to(window.cursors)
        return feed

    def forget_feeds(self) -> None:
        """Of groups that are deleted."""
        for number in [number for number in self._feeds if number not in self.state.windows]:
            del self._feeds[number]

    def carry_out(self, events: Sequence[Change]) -> None:
        """Write and apply, and let those look again to whom it may matter."""
        if not events:
            return
        self.tenure.check()
        before = self._home.log.size_bytes
        self.write(events)
        self._written_bytes += self._home.log.size_bytes - before
        self._tell(events)
        if self._written_bytes > max(_SNAPSHOT_BYTES_MIN, _SNAPSHOT_RATIO * self._snapshot_bytes):
            try:
                self._save_snapshot()
            except (
                CoordinatorNotAvailable
            ):  # the events are written all the same; the next snapshot comes later
                self._written_bytes = 0

    # ---------------------------------------------------------------- who waits

    def waiting(self, window: Window) -> Waiting:
        """Polls of a group that wait for records."""
        waiting = self._waiting.get(window.number)
        if waiting is None:
            waiting = self._waiting[window.number] = Waiting(self, window, self._clock)
        return waiting

    def look_again(self, group_id: str) -> None:
        """Who was woken has taken what it wants: the next in line may have the rest."""
        window = self.state.find(group_id)
        waiting = None if window is None else self._waiting.get(window.number)
        if waiting is not None:
            waiting.look()

    def wake(self) -> None:
        """Let everybody look again."""
        self.finishing.wake_all()
        for waiting in list(self._waiting.values()):
            waiting.wake_all()

    def _tell(self, events: Sequence[Change]) -> None:
        """Something has come back, was finished, or a group has begun anew or is gone."""
        if all(isinstance(event, Leased) for event in events):
            return
        self.finishing.wake_all()
        for event in events:
            match event:
                case Sought() | Closed():
                    waiting = self._waiting.pop(event.group, None)
                    if waiting is not None:
                        waiting.wake_all()
                case Settled() | Moving() | Trimmed():
                    waiting = self._waiting.get(event.group)
                    if waiting is not None:
                        waiting.look_for_keys()
                case Postponed():
                    waiting = self._waiting.get(event.group)
                    if waiting is not None:
                        waiting.look()
                case _:
                    pass

    def _save_snapshot(self) -> None:
        """In one go, so that no other event comes between its parts; the log may begin there once it is durable."""
        self.tenure.check()
        start, before = self._home.log.end, self._home.log.size_bytes
        for part in self.state.snapshot():
            self.write_only([part])
        self._snapshot_bytes = self._home.log.size_bytes - before
        self._written_bytes = 0
        self._trim_start, self._snapshot_start = self._snapshot_start, start

    async def trim(self) -> None:
        """Let go of what two snapshots have made superfluous: if the last is damaged, the one before it and what came since
        say the same."""
        start, self._trim_start = self._trim_start, None
        if start is None:
            return
        await self.settled()
        log = self._home.log
        if log.failure is None and start > log.log_start:
            log.delete_before(start)
            self._home.commit.request_checkpoint()
