"""What happens to a large cluster, one thing after another, and what each costs the controller and a node that only listens."""

from __future__ import annotations

import gc
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.control.plane import LIMITS, ControlPlane, Cost, Member
from bench.line import require
from goqueue.core.catalog import (
    AlterPartitions,
    Catalog,
    Command,
    CreateTopic,
    DrainNode,
    ElectLeaders,
    FenceNode,
    InSyncProposal,
    PartitionsChanged,
    RegisterNode,
    UnfenceNode,
)
from goqueue.core.cluster.balance import to_elect
from goqueue.core.cluster.nodes import Endpoints
from goqueue.core.cluster.partitions import NO_LEADER
from goqueue.core.raft.config import RaftConfig

TOPIC_PARTITIONS = 100
_PROPOSAL_COUNT_MAX = 5_000  # as `node/replication/in_sync.py` has it
_ELECTION_COUNT_MAX = 1_000  # as `node/cluster/controller.py` has it
_ENDPOINTS = Endpoints("10.0.0.1:8080", "10.0.0.1:9092", "10.0.0.1:7000")


@dataclass(frozen=True, slots=True)
class Spent:
    """Over one scene."""

    decision_count: int
    change_count: int  # of partitions
    entry_bytes: int
    controller: Cost
    listener: Cost  # of a node that only listens; where all vote, of another voter
    virtual_ms: int


@dataclass(frozen=True, slots=True)
class Kept:
    """The catalogue as a snapshot and in memory."""

    snapshot_bytes: int
    save_s: float
    load_s: float
    memory_bytes: int


@dataclass(slots=True)
class _Tally:
    decision_count: int = 0
    change_count: int = 0
    entry_bytes: int = 0


class Scenes:
    def __init__(self, node_count: int, partition_count: int, *, seed: int = 1) -> None:
        self.node_count = node_count
        self.partition_count = partition_count
        self.plane = ControlPlane(node_count, RaftConfig("any"), seed)
        self._lives: dict[str, int] = defaultdict(int)
        self._tally = _Tally()

    # ---------------------------------------------------------------- scenes

    def join_all(self) -> Spent:
        return self._measured(partial(self._join_each, list(self.plane.members)))

    def create_topics(self, *, led_by_last: int = 0) -> Spent:
        """All partitions, `led_by_last` of them led by the last node, by order."""
        busy = led_by_last // TOPIC_PARTITIONS
        commands = [
            CreateTopic(f"busy-{serial}", TOPIC_PARTITIONS, {}, assignments=self._led_by_last(serial))
            for serial in range(busy)
        ]
        others = self.partition_count // TOPIC_PARTITIONS - busy
        commands += [CreateTopic(f"topic-{serial}", TOPIC_PARTITIONS, {}) for serial in range(others)]
        return self._measured(partial(self._decide_each, commands))

    def create_large_topic(self, partition_count: int) -> Spent:
        return self._measured(partial(self._decide, CreateTopic("large", partition_count, {})))

    def idle(self, seconds: int) -> Spent:
        """Nobody decides anything; the quorum only says that it lives."""
        return self._measured(partial(self.plane.run_for, seconds * 1_000))

    def lose_last(self) -> tuple[Spent, int]:
        """The last node falls silent; with how many leaderships. It goes on listening here, so that its costs are known."""
        name, led = self._last, self.plane.catalog.partitions.leader_count(self.node_count)
        spent = self._measured(partial(self._decide, FenceNode(name, self._incarnation(name))))
        require(not self.plane.catalog.led_by(self.node_count), "the node still leads")
        require(not self.plane.catalog.led_by(NO_LEADER), "partitions are without a leader")
        return spent, led

    def bring_back_last(self) -> Spent:
        """It starts, catches up, is in sync, and leads again what it should."""
        return self._measured(partial(self._come_back, self._last))

    def restart(self, count: int) -> Spent:
        """So many nodes one after another, in good order: each hands over, is gone, is back, is in sync, and leads again."""
        names = [f"node-{number}" for number in range(self.node_count, self.node_count - count, -1)]
        return self._measured(partial(self._restart_each, names))

    def lose_controller(self, count: int) -> tuple[Spent, list[int]]:
        """So many times: it falls silent, the voter that is first tired of waiting stands for election, and another is the controller.
        How long each took is in the list, in virtual time."""
        found: list[Spent] = []
        for serial in range(count):
            # Between two of its signs of life it dies now sooner, now later.
            self.plane.run_for(RaftConfig("any").heartbeat_ms * serial // count)
            old = self.plane.controller
            found.append(self._measured(partial(self._replace, old)))
            self._bring_back(old)
        return _sum(found), [spent.virtual_ms for spent in found]

    def keep(self) -> Kept:
        catalog = self.plane.catalog
        began = time.thread_time()
        data = catalog.snapshot()
        saved = time.thread_time()
        gc.collect()
        before = _resident_bytes()
        loading = time.thread_time()
        other = Catalog(LIMITS)
        other.restore(data)
        loaded = time.thread_time()
        memory = _resident_bytes() - before
        require(
            other.snapshot() == data, "a catalogue that was loaded is another than the one that was saved"
        )
        return Kept(len(data), saved - began, loaded - loading, memory)

    # ---------------------------------------------------------------- steps

    def _replace(self, old: Member) -> None:
        plane = self.plane
        old.is_up = False
        plane.run_until(lambda: plane.has_controller)
        plane.set_observers()
        index = plane.controller.applied_index  # of the entry that its term begins with
        plane.run_until(lambda: plane.have_applied(index))

    def _bring_back(self, old: Member) -> None:
        """It hears that it is not the controller any more."""
        old.is_up = True
        self.plane.run_until(
            lambda: not old.raft.is_leader and self.plane.have_applied(self.plane.controller.applied_index)
        )

    @property
    def _last(self) -> str:
        return f"node-{self.node_count}"

    def _led_by_last(self, serial: int) -> list[list[int]]:
        others = self.node_count - 1
        return [
            [self.node_count, (serial + index) % others + 1, (serial + index + 1) % others + 1]
            for index in range(TOPIC_PARTITIONS)
        ]

    def _restart_each(self, names: Sequence[str]) -> None:
        for name in names:
            self._decide(DrainNode(name))
            self._decide(FenceNode(name, self._incarnation(name)))
            self._come_back(name)

    def _come_back(self, name: str) -> None:
        self._join(name)
        self._catch_up(name)
        states = {node.number: node.state for node in self.plane.catalog.nodes()}
        while wanted := to_elect(self.plane.catalog.astray(), states, count_max=_ELECTION_COUNT_MAX):
            self._decide(ElectLeaders(wanted, "preferred"))

    def _join_each(self, names: Sequence[str]) -> None:
        for name in names:
            self._join(name)

    def _join(self, name: str) -> None:
        self._lives[name] += 1
        incarnation = self._incarnation(name)
        self._decide(RegisterNode(name, incarnation, _ENDPOINTS))
        self._decide(UnfenceNode(name, incarnation))

    def _catch_up(self, name: str) -> None:
        """Every leader proposes what it leads of the node's partitions, as many at once as it may."""
        catalog = self.plane.catalog
        node = catalog.node(name)
        assert node is not None
        by_leader: dict[int, list[InSyncProposal]] = defaultdict(list)
        for topic, index in catalog.held_by(node.number):
            state = catalog.partition(topic, index)
            if node.number not in state.in_sync:
                wanted = [number for number in state.replicas if number in (*state.in_sync, node.number)]
                by_leader[state.leader].append(
                    InSyncProposal(topic, index, state.leader_epoch, state.epoch, wanted)
                )
        for leader, proposals in sorted(by_leader.items()):
            sender = catalog.node_by_number(leader)
            assert sender is not None
            for first in range(0, len(proposals), _PROPOSAL_COUNT_MAX):
                part = proposals[first : first + _PROPOSAL_COUNT_MAX]
                self._decide(AlterPartitions(leader, sender.incarnation, part))

    def _incarnation(self, name: str) -> str:
        return f"{name} life {self._lives[name]}"

    def _decide_each(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._decide(command)

    def _decide(self, command: Command) -> None:
        events, size = self.plane.decide(command)
        self._tally.decision_count += bool(events)
        self._tally.entry_bytes += size
        for event in events:
            if isinstance(event, PartitionsChanged):
                self._tally.change_count += len(event.changes)

    def _measured(self, act: Callable[[], None]) -> Spent:
        self._tally, began_ms = _Tally(), self.plane.now_ms
        members = self.plane.members
        costs = {name: member.begin_account() for name, member in members.items()}
        act()
        controller = self.plane.controller
        listener = members[self.plane.observer or self.plane.twin]
        return Spent(
            self._tally.decision_count,
            self._tally.change_count,
            self._tally.entry_bytes,
            controller.cost.since(costs[controller.name]),
            listener.cost.since(costs[listener.name]),
            self.plane.now_ms - began_ms,
        )


def _sum(found: Sequence[Spent]) -> Spent:
    return Spent(
        sum(spent.decision_count for spent in found),
        sum(spent.change_count for spent in found),
        sum(spent.entry_bytes for spent in found),
        _sum_costs([spent.controller for spent in found]),
        _sum_costs([spent.listener for spent in found]),
        sum(spent.virtual_ms for spent in found),
    )


def _sum_costs(costs: Sequence[Cost]) -> Cost:
    return Cost(
        sum(cost.cpu_s for cost in costs),
        sum(cost.sent_count for cost in costs),
        sum(cost.sent_bytes for cost in costs),
        max(cost.longest_s for cost in costs),
    )


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
