"""Deliberate mistakes about what moves with its partition (ledgers, schedules), and about what operators order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from msgspec import structs

from goqueue.core.cluster import membership, reassignment
from goqueue.core.cluster.draft import Cluster, Draft
from goqueue.core.cluster.elections import ElectionRules, States, take_out
from goqueue.core.cluster.events import Event as MetadataEvent
from goqueue.core.cluster.events import NodeStateChanged
from goqueue.core.cluster.nodes import NodeEntry, NodeState
from goqueue.core.cluster.partitions import PartitionState, ordered
from goqueue.core.lease.events import Change, Event, Leased, Settled
from goqueue.core.schedule.events import Event as ScheduleEvent
from goqueue.core.schedule.events import Removed
from goqueue.core.schedule.schedule import Schedule
from goqueue.core.schedule.states import State
from goqueue.node.cluster.controller import Controller
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.schedule.shard import OwnedSchedule
from goqueue.node.state_log import StateLog


@contextmanager
def lose_ledger() -> Iterator[None]:
    """A new leader begins with an empty ledger."""

    async def open_empty(self: OwnedLedger) -> None:
        self._predecessors_end = None

    with patch.object(OwnedLedger, "open", open_empty):
        yield


@contextmanager
def keep_leases_in_memory() -> Iterator[None]:
    """Who holds what is known to the leader alone: a lease is applied and answered, and not written."""
    carry_out = OwnedLedger.carry_out

    def forgetful(self: OwnedLedger, events: Sequence[Change]) -> None:
        carry_out(self, [event for event in events if not isinstance(event, Leased)])
        for event in events:
            if isinstance(event, Leased):
                self.state.apply(event)

    with patch.object(OwnedLedger, "carry_out", forgetful):
        yield


@contextmanager
def drop_acks() -> Iterator[None]:
    """A new leader takes over what its predecessor has given, and not what came of it."""
    replay = OwnedLedger._replay

    def forgetful(self: OwnedLedger, event: Event) -> None:
        if not isinstance(event, Settled):
            replay(self, event)

    with patch.object(OwnedLedger, "_replay", forgetful):
        yield


@contextmanager
def settle_alone() -> Iterator[None]:
    """What a ledger says is told when the leader itself has it on disk."""
    settled = StateLog.settled

    async def hasty(self: StateLog[Event], *, gives_up: bool = False) -> None:
        if self._partition.topic.startswith("__ledger."):
            await self._partition.commit.wait(self._partition.log.end)
        else:
            await settled(self, gives_up=gives_up)

    with patch.object(StateLog, "settled", hasty):
        yield


@contextmanager
def forget_firing() -> Iterator[None]:
    """A new leader fires again what its predecessor had begun to fire, under another producer's name."""
    open_ = OwnedSchedule.open

    async def open_and_forget(self: OwnedSchedule) -> None:
        await open_(self)
        state = self.state
        if state.firing is not None:
            for id in state.firing.ids:
                if state.states.get(id) is State.FIRING:
                    state.states.set(id, State.PENDING)
            state.firing = None

    with patch.object(OwnedSchedule, "open", open_and_forget):
        yield


@contextmanager
def forget_cancelled() -> Iterator[None]:
    """What was cancelled is known to the leader alone."""
    carry_out, apply = OwnedSchedule.carry_out, Schedule.apply

    def forgetful(self: OwnedSchedule, events: Sequence[ScheduleEvent]) -> None:
        if all(isinstance(event, Removed) for event in events):
            for event in events:
                apply(self.state, event, self._clock.now_ms())
        else:
            carry_out(self, events)  # type: ignore[arg-type]  # handed on as they came

    with patch.object(OwnedSchedule, "carry_out", forgetful):
        yield


@contextmanager
def reassign_early() -> Iterator[None]:
    """The old replicas of a partition that moves go as soon as enough of the others are in sync, whether or not all that came are."""

    def complete(state: PartitionState, states: States, rules: ElectionRules) -> PartitionState:
        remaining = ordered(state.target, state.in_sync)
        if not state.is_moving or not remaining:
            return state
        moved = structs.replace(state, replicas=state.target, adding=(), removing=(), in_sync=remaining)
        return structs.replace(moved, eligible=())

    with patch.object(reassignment, "complete", complete):
        yield


@contextmanager
def drain_replicas() -> Iterator[None]:
    """Whoever is drained is taken out of the in-sync sets, as if it were dead."""
    change_state = membership._change_state

    def change(cluster: Cluster, entry: NodeEntry, state: NodeState) -> list[MetadataEvent]:
        if state is not NodeState.DRAINING:
            return change_state(cluster, entry, state)
        draft = Draft(cluster, {**cluster.nodes.states(), entry.number: state})
        for topic, index in cluster.partitions.held_by(entry.number):
            held = cluster.partitions.get(topic, index)
            draft.settle(topic, index, take_out(held, entry.number, cluster.rules_of(topic)))
        return [NodeStateChanged(entry.name, state), *draft.events()]

    with patch.object(membership, "_change_state", change):
        yield


@contextmanager
def drop_plan_of_predecessor() -> Iterator[None]:
    """A plan is carried out by the controller that made it; its successor does not go on."""
    begin, work = Controller._begin, Controller._work
    inherited: dict[Controller, int | None] = {}

    def note(self: Controller) -> None:
        begin(self)
        active = self._metadata.catalog.plans.active()
        inherited[self] = None if active is None else active.id

    async def work_for_own(self: Controller) -> None:
        plans = self._metadata.catalog.plans
        active = plans.active()
        if active is None or inherited.get(self) != active.id:
            await work(self)
        else:
            with patch.object(plans, "active", lambda: None):
                await work(self)

    with patch.object(Controller, "_begin", note), patch.object(Controller, "_work", work_for_own):
        yield
