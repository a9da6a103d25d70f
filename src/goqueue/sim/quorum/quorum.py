"""A quorum in one process: disks that keep what was persisted and nothing else, a network that loses, doubles, delays and
reorders, and members that crash at any moment, also between being told to persist and having done it. One seed decides all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random

import msgspec
from msgspec import Struct

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.messages import Entry, Message, Snapshot, decode_message, encode_message
from goqueue.core.raft.raft import HardState, Raft, Ready, Restored
from goqueue.sim.quorum.checkers import RaftCheckers
from goqueue.sim.quorum.transcript import Transcript

MakeRaft = Callable[[RaftConfig, Restored, int, Callable[[int], int]], Raft]


def make_raft(config: RaftConfig, restored: Restored, now_ms: int, chance: Callable[[int], int]) -> Raft:
    return Raft(config, restored, now_ms=now_ms, chance=chance)


class RaftDisk:
    """What survives a crash."""

    def __init__(self, voters: tuple[str, ...]) -> None:
        self.voters = voters
        self.state = HardState(0, None)
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []

    def save(self, ready: Ready, part_count: int | None = None) -> None:
        """All of it, or as many parts as were done when the power went."""
        parts: list[Snapshot | Entry | HardState] = [
            *([ready.snapshot] if ready.snapshot else []),
            *ready.entries,
            *([ready.state] if ready.state else []),
        ]
        for part in parts[:part_count]:
            match part:
                case Snapshot():
                    self.snapshot, self.entries = part, []
                case Entry():
                    self.entries = [one for one in self.entries if one.index < part.index]
                    self.entries.append(part)
                case HardState():
                    self.state = part

    def compact(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.entries = [entry for entry in self.entries if entry.index > snapshot.index]

    def lose(self) -> None:
        self.state = HardState(0, None, is_recovering=True)
        self.snapshot = None
        self.entries = []

    def lose_all(self) -> None:
        """Not even that it had anything is known."""
        self.state = HardState(0, None)
        self.snapshot = None
        self.entries = []

    def lose_tail(self, kept_count: int) -> None:
        self.state = HardState(self.state.term, self.state.vote, is_recovering=True)
        del self.entries[kept_count:]

    def restored(self) -> Restored:
        return Restored(self.state, self.snapshot, tuple(self.entries), self.voters)


class Weather(Struct, frozen=True):
    """How bad the network is."""

    loss: float = 0.0
    doubling: float = 0.0
    delay_ms_max: int = 20
    long_delay: float = 0.0  # how many take seconds
    slow_disk: float = 0.0  # how many writes take a while


CALM = Weather()
STORM = Weather(loss=0.1, doubling=0.1, delay_ms_max=120, long_delay=0.05, slow_disk=0.3)


class RaftMember:
    def __init__(self, name: str, disk: RaftDisk) -> None:
        self.name = name
        self.disk = disk
        self.raft: Raft | None = None
        self.out: Ready | None = None  # being persisted
        self.life = 0
        self.applied: list[bytes] = []
        self.applied_index = 0


class RaftQuorum:
    def __init__(
        self,
        seed: int,
        voter_count: int,
        observer_count: int = 0,
        make: MakeRaft = make_raft,
        checkers: RaftCheckers | None = None,
    ) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.weather = CALM
        self.checkers = checkers or RaftCheckers()
        self.names = tuple(f"n{number}" for number in range(1, voter_count + observer_count + 1))
        self.voters = self.names[:voter_count]
        self.members = {name: RaftMember(name, RaftDisk(self.voters)) for name in self.names}
        self.cut: set[tuple[str, str]] = set()
        self.transcript: Transcript | None = None
        self._make = make
        self._events: list[tuple[int, int, str, int, bytes | None]] = []
        self._count = 0
        self._proposal = 0
        for name in self.names:
            self.start(name)

    # Faults

    def start(self, name: str) -> None:
        member = self.members[name]
        config = RaftConfig(
            name,
            heartbeat_ms=300,
            election_ms_min=900,
            election_ms_max=1_800,
            lease_ms=1_500,
            entries_per_append_max=5,
            uncommitted_count_max=50,
        )
        member.life += 1
        member.applied, member.applied_index = [], 0
        member.raft = self._make(config, member.disk.restored(), self.now_ms, self.random.randrange)
        self.checkers.started(name)
        self._note(f"{name} starts")
        self._work(member)

    def crash(self, name: str) -> None:
        """Some of what was being persisted is there. If all is, some messages may have gone out as well."""
        member = self.members[name]
        self._note(f"{name} crashes")
        if member.out is not None:
            part_count = self.random.randrange(len(member.out.entries) + 4)
            member.disk.save(member.out, part_count)
            whole = (
                len(member.out.entries) + (member.out.snapshot is not None) + (member.out.state is not None)
            )
            if part_count >= whole:
                sent = self.random.randrange(len(member.out.messages) + 1)
                self._send(member.out.messages[:sent])
        member.raft = member.out = None

    def lose_log(self, name: str, kept_count: int = 0, *, is_unknown: bool = False) -> None:
        """It comes back with nothing, or some entries; nothing that it said before is still on its way. `is_unknown`: it does not know."""
        self.crash(name)
        if is_unknown:
            self.members[name].disk.lose_all()
        elif kept_count:
            self.members[name].disk.lose_tail(kept_count)
        else:
            self.members[name].disk.lose()
        self._events = [one for one in self._events if one[4] is None or not self._is_from(one[4], name)]
        self._events.sort()
        self.checkers.lost(name)
        self._note(f"{name} has lost its log")
        self.start(name)

    def part(self, side: Sequence[str]) -> None:
        self._note(f"{' '.join(side)} cannot reach the others")
        self.cut = {(a, b) for a in self.names for b in self.names if (a in side) != (b in side)}

    def unite(self) -> None:
        self._note("all reach each other again")
        self.cut = set()

    def heal(self) -> None:
        self.unite()
        self.weather = CALM
        for name in self.names:
            if self.members[name].raft is None:
                self.start(name)

    # Use

    @property
    def leader(self) -> Raft | None:
        """The newest, if there is one."""
        leaders = [raft for raft in self.running if raft.is_leader]
        return max(leaders, key=lambda raft: raft.term, default=None)

    @property
    def running(self) -> list[Raft]:
        return [member.raft for member in self.members.values() if member.raft is not None]

    def propose(self) -> bytes | None:
        leader = self.leader
        if leader is None:
            return None
        self._proposal += 1
        payload = f"p{self._proposal}".encode()
        leader.propose(payload, self.now_ms)
        self._work(self.members[leader.name])
        return payload

    def touch(self, name: str) -> None:
        """After the caller did something to it."""
        self._work(self.members[name])

    def compact(self, name: str) -> None:
        member = self.members[name]
        snapshot_index = member.disk.snapshot.index if member.disk.snapshot else 0
        if member.raft is not None and member.out is None and member.applied_index > snapshot_index:
            snapshot = member.raft.compact(member.applied_index, msgspec.json.encode(member.applied))
            member.disk.compact(snapshot)

    def run(self, duration_ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        end_ms = self.now_ms + duration_ms
        while not until():
            tick_ms, name = (
                min((raft.next_tick_ms(), raft.name) for raft in self.running)
                if self.running
                else (end_ms, "")
            )
            event_ms = self._events[0][0] if self._events else end_ms
            if min(tick_ms, event_ms) >= end_ms:
                self.now_ms = end_ms
                return until()
            if event_ms <= tick_ms:
                self._happen()
            else:
                self.now_ms = max(self.now_ms, tick_ms)
                member = self.members[name]
                if member.raft is not None:
                    member.raft.tick(self.now_ms)
                    self._work(member)
        return True

    def _happen(self) -> None:
        at_ms, _, name, life, data = heappop(self._events)
        self.now_ms = max(self.now_ms, at_ms)
        member = self.members[name]
        if member.raft is None:
            return
        if data is not None:
            message = decode_message(data)
            if (message.source, message.target) not in self.cut:
                member.raft.step(message, self.now_ms)
        elif member.life == life and member.out is not None:
            self._finish(member)
        self._work(member)

    def _work(self, member: RaftMember) -> None:
        while member.raft is not None and (ready := member.raft.ready()) is not None:
            member.out = ready
            if self.random.random() < self.weather.slow_disk:
                self._schedule(self.random.randrange(1, 100), member.name, member.life, None)
                break
            self._finish(member)
        if member.raft is not None:
            self.checkers.look(member.raft, self.running)

    def _finish(self, member: RaftMember) -> None:
        ready, raft = member.out, member.raft
        if ready is None or raft is None:
            raise AssertionError(f"{member.name} has nothing to finish")
        member.out = None
        if self.transcript is not None:
            self.transcript.ready(self.now_ms, raft, ready)
        member.disk.save(ready)
        self._send(ready.messages)
        raft.advance(ready)
        if ready.restored is not None:
            member.applied = msgspec.json.decode(ready.restored.payload, type=list[bytes])
            member.applied_index = ready.restored.index
            self.checkers.restored(member.name, ready.restored, member.applied)
        for entry in ready.committed:
            self.checkers.committed(member.name, entry)
            member.applied.append(entry.payload)
            member.applied_index = entry.index

    def _note(self, text: str) -> None:
        if self.transcript is not None:
            self.transcript.note(self.now_ms, text)

    def _send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.checkers.sent(message)
            count = 1 + (self.random.random() < self.weather.doubling)
            for _ in range(0 if self.random.random() < self.weather.loss else count):
                delay_ms = self.random.randrange(1, self.weather.delay_ms_max)
                if self.random.random() < self.weather.long_delay:
                    delay_ms += self.random.randrange(4_000)
                self._schedule(delay_ms, message.target, 0, encode_message(message))

    def _schedule(self, delay_ms: int, name: str, life: int, data: bytes | None) -> None:
        if name in self.members:
            self._count += 1
            heappush(self._events, (self.now_ms + delay_ms, self._count, name, life, data))

    @staticmethod
    def _is_from(data: bytes, name: str) -> bool:
        message = decode_message(data)
        return name in (message.source, message.target)
