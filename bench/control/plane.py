"""A quorum with its observers in one process: the real Raft, catalogue, messages and signatures; time, network and disks are made up.

A message takes `LATENCY_MS`, an fsync `SYNC_MS`; both are virtual. What a member computes is measured: processor time of its thread,
which is all there is. The catalogue is kept by the controller, by one more voter (its *twin*, which takes over) and by one observer;
to keep it on all hundred would say the same a hundred times, and need the memory of a hundred machines. Sockets, HTTP and asyncio are not in
it: `cluster.idle` measures them, on real nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from bench.line import BenchFailed, require
from goqueue.core.catalog import Catalog, Command, Event, decode_events, encode_events
from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.messages import EntryKind, Message, decode_message, encode_message
from goqueue.core.raft.raft import HardState, Raft, Ready, Restored
from goqueue.model.limits import Limits
from goqueue.node.cluster.exchange import path_of
from goqueue.node.cluster.secret import Secret

LATENCY_MS = 1
SYNC_MS = 2
VOTER_COUNT = 5
LIMITS = Limits(partition_count_max=1_000_000, topic_count_max=1_000_000)
_VIRTUAL_MS_MAX = 600_000
_KEY = b"every node of this process knows it"


@dataclass(slots=True)
class Cost:
    """What one member has spent so far."""

    cpu_s: float = 0.0
    sent_count: int = 0
    sent_bytes: int = 0
    longest_s: float = 0.0  # the longest that it computed without looking at anything else

    def since(self, before: Cost) -> Cost:
        return Cost(
            self.cpu_s - before.cpu_s,
            self.sent_count - before.sent_count,
            self.sent_bytes - before.sent_bytes,
            self.longest_s,
        )


@dataclass(slots=True)
class Member:
    name: str
    raft: Raft
    secret: Secret
    catalog: Catalog | None
    cost: Cost = field(default_factory=Cost)
    applied_index: int = 0
    is_up: bool = True

    def begin_account(self) -> Cost:
        """What it has spent until now, to be compared with later."""
        self.cost.longest_s = 0.0
        return Cost(self.cost.cpu_s, self.cost.sent_count, self.cost.sent_bytes)


class ControlPlane:
    """Nodes 1 to `node_count`; the first five vote."""

    def __init__(self, node_count: int, config: RaftConfig, seed: int) -> None:
        self._rng = Random(seed)
        self.now_ms = 0
        self._mail: list[
            tuple[int, int, str, str, str, bytes]
        ] = []  # when, serial, target, path, header, body
        self._serial = 0
        names = [f"node-{number}" for number in range(1, node_count + 1)]
        self.voters = tuple(names[:VOTER_COUNT])
        self.observer = names[-1] if node_count > VOTER_COUNT else None
        self.twin = self.voters[1]
        self.members = {name: self._member(name, config) for name in names}
        self.first = self.members[self.voters[0]]
        self.first.raft.campaign(0)
        self.run_until(lambda: self.first.raft.is_active)
        self.set_observers()

    def _member(self, name: str, config: RaftConfig) -> Member:
        settings = RaftConfig(
            name, config.heartbeat_ms, config.election_ms_min, config.election_ms_max, config.lease_ms
        )
        restored = Restored(HardState(0, None), None, (), self.voters)
        raft = Raft(settings, restored, now_ms=0, chance=self._rng.randrange)
        keeps = name in (self.voters[0], self.twin, self.observer)
        return Member(name, raft, Secret(_KEY), Catalog(LIMITS) if keeps else None)

    def set_observers(self) -> None:
        controller = self.controller
        controller.raft.set_observers([name for name in self.members if name not in self.voters])

    @property
    def has_controller(self) -> bool:
        return any(member.is_up and member.raft.is_active for member in self.members.values())

    @property
    def controller(self) -> Member:
        for member in self.members.values():
            if member.is_up and member.raft.is_active:
                return member
        raise BenchFailed("there is no controller")

    @property
    def catalog(self) -> Catalog:
        catalog = self.controller.catalog
        require(catalog is not None, "the controller is one without a catalogue")
        assert catalog is not None
        return catalog

    # ---------------------------------------------------------------- deciding

    def decide(self, command: Command) -> tuple[list[Event], int]:
        """Committed, and applied by everybody who is up; with the bytes of the entry, 0 if there was nothing to do."""
        controller, catalog = self.controller, self.catalog
        with _Clock(controller.cost):
            events = catalog.decide(command, self.now_ms)
            payload = encode_events(events) if events else b""
            index = controller.raft.propose(payload, self.now_ms) if events else 0
        if events:
            self._work(controller)
            self.run_until(lambda: self.have_applied(index))
        return events, len(payload)

    def have_applied(self, index: int) -> bool:
        """Everybody who is up."""
        return all(one.applied_index >= index for one in self.members.values() if one.is_up)

    # ---------------------------------------------------------------- time

    def run_until(self, is_so: Callable[[], bool]) -> None:
        end_ms = self.now_ms + _VIRTUAL_MS_MAX
        for member in self.members.values():
            self._work(member)
        while not is_so():
            require(self.now_ms < end_ms, "what was waited for does not happen")
            self._step()

    def run_for(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        while self._next_ms() <= end_ms:
            self._step()
        self.now_ms = end_ms

    def _next_ms(self) -> int:
        next_ms = min(one.raft.next_tick_ms() for one in self.members.values() if one.is_up)
        return min(next_ms, self._mail[0][0]) if self._mail else next_ms

    def _step(self) -> None:
        """Whatever comes next: all messages of a moment, or a timer."""
        self.now_ms = max(self.now_ms, self._next_ms())
        touched: dict[str, Member] = {}
        while self._mail and self._mail[0][0] <= self.now_ms:
            _, _, target, path, header, body = heappop(self._mail)
            member = self.members[target]
            if member.is_up:
                self._receive(member, path, header, body)
                touched[target] = member
        for name, member in self.members.items():
            if member.is_up and member.raft.next_tick_ms() <= self.now_ms:
                with _Clock(member.cost):
                    member.raft.tick(self.now_ms)
                touched[name] = member
        for member in touched.values():
            self._work(member)

    def _receive(self, member: Member, path: str, header: str, body: bytes) -> None:
        with _Clock(member.cost):
            member.secret.verify(
                header, "POST", path, body, target=member.name, now_ms=self.now_ms, cluster_id=None
            )
            member.raft.step(decode_message(body), self.now_ms)

    def _work(self, member: Member) -> None:
        """Persist, send and apply, as `node/cluster/quorum.py` does."""
        if not member.is_up:
            return
        with _Clock(member.cost):
            while (ready := member.raft.ready()) is not None:
                member.raft.advance(ready)
                delay_ms = LATENCY_MS + (SYNC_MS if ready.entries or ready.state else 0)
                for message in ready.messages:
                    self._send(member, message, delay_ms)
                _apply(member, ready)

    def _send(self, member: Member, message: Message, delay_ms: int) -> None:
        body, path = encode_message(message), path_of(message)
        self._serial += 1
        header = member.secret.sign(
            "POST",
            path,
            body,
            source=member.name,
            target=message.target,
            cluster_id=None,
            timestamp_ms=self.now_ms,
            nonce=str(self._serial),
        )
        member.cost.sent_count += 1
        member.cost.sent_bytes += len(body)
        heappush(self._mail, (self.now_ms + delay_ms, self._serial, message.target, path, header, body))


class _Clock:
    """Adds what the thread computes meanwhile."""

    def __init__(self, cost: Cost) -> None:
        self._cost = cost

    def __enter__(self) -> None:
        self._began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        spent = time.thread_time() - self._began
        self._cost.cpu_s += spent
        self._cost.longest_s = max(self._cost.longest_s, spent)


def _apply(member: Member, ready: Ready) -> None:
    for entry in ready.committed:
        if entry.kind is EntryKind.COMMAND and member.catalog is not None:
            for event in decode_events(entry.payload):
                member.catalog.apply(event)
        member.applied_index = entry.index
