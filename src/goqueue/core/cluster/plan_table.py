"""The plans there are, with the indexes by which the active one is carried out."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from goqueue.core.cluster.events import MovesChanged, PlanChanged, PlanMade
from goqueue.core.cluster.plans import FINISHED_COUNT_MAX, Key, Move, MoveState, Plan, PlanState
from goqueue.model.cluster_errors import ReassignmentNotFound


class PlanTable:
    def __init__(self) -> None:
        self._plans: dict[int, Plan] = {}  # in the order they were made; moves are in `_moves`
        self._moves: dict[int, list[Move]] = {}
        self._waiting: dict[Key, int] = {}  # of the active plan, by their index in it
        self._moving: dict[Key, int] = {}
        self._active: int | None = None
        self.next_id = 1

    def all(self) -> list[Plan]:
        """The oldest first."""
        return [self.get(id) for id in self._plans]

    def get(self, id: int) -> Plan:
        plan = self._plans.get(id)
        if plan is None:
            raise ReassignmentNotFound(f"there is no plan {id}, or it is long over", plan=id)
        return structs.replace(plan, moves=tuple(self._moves[id]))

    def active(self) -> Plan | None:
        """Without its moves."""
        return None if self._active is None else self._plans[self._active]

    def waiting(self) -> list[tuple[int, Move]]:
        """Of the active plan, with their indexes."""
        return self._indexed(self._waiting.values())

    @property
    def waiting_count(self) -> int:
        """Of the active plan."""
        return len(self._waiting)

    def moving(self) -> list[tuple[int, Move]]:
        return self._indexed(sorted(self._moving.values()))

    def limit_of(self, topic: str, index: int) -> int | None:
        """How many bytes per second a node may copy of partitions that the plan moves, of which this is one; None: any number."""
        plan = self.active()
        if plan is None or (topic, index) not in self._moving:
            return None
        return 0 if plan.state is PlanState.PAUSED else plan.throttle

    def _indexed(self, indexes: Iterable[int]) -> list[tuple[int, Move]]:
        moves = [] if self._active is None else self._moves[self._active]
        return [(index, moves[index]) for index in indexes]

    # ---------------------------------------------------------------- changes

    def apply(self, event: PlanMade | PlanChanged | MovesChanged) -> None:
        match event:
            case PlanMade():
                plan = Plan(event.id, (), PlanState.RUNNING, event.parallel, event.throttle, event.created_ms)
                self._put(plan, event.moves)
                self.next_id = event.id + 1
            case PlanChanged():
                ended_ms = None if event.state.is_active else event.at_ms
                self._plans[event.id] = structs.replace(
                    self._plans[event.id], state=event.state, ended_ms=ended_ms
                )
                if not event.state.is_active:
                    self._active = None
                    self._waiting, self._moving = {}, {}
                    self._forget()
            case MovesChanged():
                for change in event.changes:
                    self._change(event.id, change.index, change.state, change.reason)

    def topic_deleted(self, topic: str) -> None:
        self._cancel(topic, 0, "the topic was deleted")

    def topic_shrunk(self, topic: str, count: int) -> None:
        self._cancel(topic, count, "the partition is no more")

    def _cancel(self, topic: str, first: int, reason: str) -> None:
        if self._active is None:
            return
        for indexes in (self._waiting, self._moving):
            for key in [key for key in indexes if key[0] == topic and key[1] >= first]:
                self._change(self._active, indexes[key], MoveState.CANCELLED, reason)

    def load(self, plans: Iterable[Plan], next_id: int) -> None:
        """From a snapshot."""
        for plan in plans:
            self._put(structs.replace(plan, moves=()), list(plan.moves))
        self.next_id = next_id

    def _put(self, plan: Plan, moves: list[Move]) -> None:
        self._plans[plan.id] = plan
        self._moves[plan.id] = list(moves)
        if plan.state.is_active:
            self._active = plan.id
            for index, move in enumerate(moves):
                self._index(index, move)

    def _change(self, id: int, index: int, state: MoveState, reason: str) -> None:
        moves = self._moves[id]
        move = moves[index] = structs.replace(moves[index], state=state, reason=reason)
        if id == self._active:
            self._waiting.pop(move.key, None)
            self._moving.pop(move.key, None)
            self._index(index, move)

    def _index(self, index: int, move: Move) -> None:
        if move.state is MoveState.WAITING:
            self._waiting[move.key] = index
        elif move.state is MoveState.MOVING:
            self._moving[move.key] = index

    def _forget(self) -> None:
        finished = [id for id, plan in self._plans.items() if not plan.state.is_active]
        for id in finished[:-FINISHED_COUNT_MAX]:
            del self._plans[id], self._moves[id]
