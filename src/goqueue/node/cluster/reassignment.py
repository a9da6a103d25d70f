"""Moving partitions as an operation: plans are made, watched, paused and given up on whichever node. The controller carries them
out; see `goqueue.core.cluster.plans`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from goqueue.core.catalog import Catalog
from goqueue.core.cluster.commands import CancelPlan, MakePlan, PausePlan, ResumePlan
from goqueue.core.cluster.events import PlanMade
from goqueue.core.cluster.nodes import NodeState
from goqueue.core.cluster.plans import Move, MoveState, Plan
from goqueue.model.cluster_errors import NodeNotFound
from goqueue.model.errors import GoQueueError, InvariantViolation
from goqueue.node.cluster.controller import Controller
from goqueue.node.cluster.ports import Copying, PeerLinks
from goqueue.node.commit import Spawn
from goqueue.node.guard import Guard
from goqueue.node.metadata import Metadata
from goqueue.node.requests import NO_LEADER, PartitionFacts
from goqueue.node.shared_round import SharedRound

logger = logging.getLogger(__name__)
_SIZES_S: Final = 5.0  # for all topics together: a leader that does not answer takes as long by itself
_ASKED_COUNT_MAX: Final = 16  # topics at once


class WantedMove(Struct, frozen=True):
    topic: str
    partition: int
    replicas: list[str | int]  # nodes, by name or number


class PlanOrder(Struct, frozen=True):
    """One of `moves`, `drain` and `is_balance`."""

    moves: list[WantedMove] | None = None
    drain: str | int | None = None
    is_balance: bool = False
    topics: list[str] | None = None
    throttle: int | None = None
    parallel: int = 5


class MoveView(Struct, frozen=True):
    """Nodes by their names. What only the controller knows is None where it does not answer, or when nothing is copied."""

    topic: str
    partition: int
    state: str
    before: list[str]
    after: list[str]
    adding: list[str]
    in_sync: list[str]
    records_left: int | None = None
    bytes_left: int | None = None  # about
    percent: float | None = None
    reason: str = ""


class PlanView(Struct, frozen=True):
    id: int
    state: str
    parallel: int
    throttle: int | None
    created_ms: int
    ended_ms: int | None
    counts: dict[str, int]  # of moves, by their state
    moves: list[MoveView]


class NodeShare(Struct, frozen=True):
    """What a node has now and what it will have. Leaders are first replicas. Bytes are what it has to copy; None: not known."""

    node: str
    replicas_before: int
    replicas_after: int
    leaders_before: int
    leaders_after: int
    copied_bytes: int | None


class Preview(Struct, frozen=True):
    moves: list[MoveView]
    nodes: list[NodeShare]
    warnings: list[str]


class Sizes(Protocol):
    async def of(self, topic: str) -> list[PartitionFacts]:
        """As their leaders know them."""


class Reassignments:
    def __init__(
        self, metadata: Metadata, controller: Controller, links: PeerLinks, guard: Guard, spawn: Spawn
    ) -> None:
        """`guard`: the catalogue of a node that starts may lack plans that are under way."""
        self._guard = guard
        self._metadata = metadata
        self._controller = controller
        self._links = links
        self._copying_round = SharedRound(self._copying, spawn)

    @property
    def _catalog(self) -> Catalog:
        return self._metadata.catalog

    async def make(self, order: PlanOrder) -> PlanView:
        self._guard.admit_read()  # who is refused afterwards would not know that it is made
        events = await self._metadata.execute(self._command(order))
        made = next((event for event in events if isinstance(event, PlanMade)), None)
        if made is None:
            raise InvariantViolation("a plan was made and is not among the events")
        logger.info("a plan is made id=%d moves=%d", made.id, len(made.moves))
        return await self.get(made.id)

    async def foresee(self, order: PlanOrder, sizes: Sizes) -> Preview:
        """What the plan would do; nothing is done."""
        self._guard.admit_read()
        moves, warnings = self._catalog.foresee(self._command(order))
        copied = await self._copied_bytes(moves, sizes)
        return Preview([self._move(move, ()) for move in moves], self._shares(moves, copied), warnings)

    async def all(self) -> list[PlanView]:
        """The latest first."""
        self._guard.admit_read()
        copying = await self._copying_round.ask()
        views: list[PlanView] = []
        for plan in reversed(self._catalog.plans.all()):
            views.append(self._view(plan, copying))
            await asyncio.sleep(0)  # each may have 10,000 moves
        return views

    async def get(self, id: int) -> PlanView:
        self._guard.admit_read()
        plan = self._catalog.plans.get(id)
        return self._view(plan, await self._copying_round.ask() if plan.state.is_active else [])

    async def pause(self, id: int) -> PlanView:
        return await self._change(PausePlan(id))

    async def resume(self, id: int) -> PlanView:
        return await self._change(ResumePlan(id))

    async def cancel(self, id: int) -> PlanView:
        """What is on its way goes back; what is done stays."""
        return await self._change(CancelPlan(id))

    async def _change(self, command: PausePlan | ResumePlan | CancelPlan) -> PlanView:
        self._guard.admit_read()
        await self._metadata.execute(command)
        return await self.get(command.id)

    # ---------------------------------------------------------------- names and numbers

    def _command(self, order: PlanOrder) -> MakePlan:
        targets = None
        if order.moves is not None:
            targets = [
                (one.topic, one.partition, [self._number(each) for each in one.replicas])
                for one in order.moves
            ]
        return MakePlan(
            targets=targets,
            drain=None if order.drain is None else self._known_name(order.drain),
            is_balance=order.is_balance,
            topics=order.topics,
            throttle=order.throttle,
            parallel=order.parallel,
        )

    def _number(self, node: str | int) -> int:
        """Numbers are checked with the plan."""
        if isinstance(node, int):
            return node
        entry = self._catalog.node(node)
        if entry is None:
            raise NodeNotFound(node)
        return entry.number

    def _known_name(self, node: str | int) -> str:
        entry = self._catalog.node_by_number(node) if isinstance(node, int) else self._catalog.node(node)
        if entry is None:
            raise NodeNotFound(str(node))
        return entry.name

    def _name(self, number: int) -> str:
        entry = self._catalog.node_by_number(number)
        return str(number) if entry is None else entry.name

    def _names(self, numbers: Sequence[int]) -> list[str]:
        return [self._name(number) for number in numbers]

    # ---------------------------------------------------------------- views

    async def _copying(self) -> Sequence[Copying]:
        """As the controller knows it. Without it everything else can still be told."""
        leader = self._metadata.quorum.leader
        try:
            if leader is None or leader == self._metadata.quorum.name:
                return self._controller.copying()
            return await self._links.copying(leader)
        except GoQueueError as error:
            logger.info("how far partitions have moved is not known error=%r", error.sentence)
            return []

    def _view(self, plan: Plan, copying: Sequence[Copying]) -> PlanView:
        by_place: dict[tuple[str, int], list[Copying]] = {}
        for one in copying:
            by_place.setdefault((one.topic, one.partition), []).append(one)
        counts = Counter(move.state.value for move in plan.moves)
        return PlanView(
            id=plan.id,
            state=plan.state.value,
            parallel=plan.parallel,
            throttle=plan.throttle,
            created_ms=plan.created_ms,
            ended_ms=plan.ended_ms,
            counts={state.value: counts[state.value] for state in MoveState},
            moves=[self._move(move, by_place.get(move.key, ())) for move in plan.moves],
        )

    def _move(self, move: Move, copying: Sequence[Copying]) -> MoveView:
        state = self._catalog.partitions.find(*move.key)
        is_moving = move.state is MoveState.MOVING and state is not None
        adding = state.adding if is_moving and state is not None else ()
        records_left = bytes_left = percent = None
        if is_moving and copying:
            records = sum(one.records for one in copying)
            records_left = sum(one.records_left for one in copying)
            bytes_left = sum(one.bytes * one.records_left // max(one.records, 1) for one in copying)
            percent = round(100 * (1 - records_left / records), 1) if records else 100.0
        return MoveView(
            topic=move.topic,
            partition=move.partition,
            state=move.state.value,
            before=self._names(move.before),
            after=self._names(move.after),
            adding=self._names(adding),
            in_sync=[] if state is None else self._names(state.in_sync),
            records_left=records_left,
            bytes_left=bytes_left,
            percent=percent,
            reason=move.reason or self._waits_for(move),
        )

    def _waits_for(self, move: Move) -> str:
        """Why it does not go on, if the catalogue knows."""
        if move.state not in (MoveState.WAITING, MoveState.MOVING):
            return ""
        states = {node.number: node.state for node in self._catalog.nodes()}
        down = [each for each in move.after if states.get(each) is NodeState.FENCED]
        if down:
            return f"waits for {', '.join(self._names(down))}, which is down"
        state = self._catalog.partitions.find(*move.key)
        return "waits for a leader" if state is not None and state.leader == NO_LEADER else ""

    # ---------------------------------------------------------------- what a plan would cost

    async def _copied_bytes(self, moves: Sequence[Move], sizes: Sizes) -> dict[int, int | None]:
        """By node."""
        copied: dict[int, int | None] = {}
        known = await self._known_sizes(
            dict.fromkeys(move.topic for move in moves if not set(move.after) <= set(move.before)), sizes
        )
        for move in moves:
            for number in [each for each in move.after if each not in move.before]:
                facts = known.get(move.topic, [])
                size = facts[move.partition].size_bytes if move.partition < len(facts) else None
                before = copied.get(number, 0)
                copied[number] = None if size is None or before is None else before + size
        return copied

    async def _known_sizes(self, topics: Iterable[str], sizes: Sizes) -> dict[str, list[PartitionFacts]]:
        """Of those whose leaders answer before the time is up."""
        known: dict[str, list[PartitionFacts]] = {}
        turns = asyncio.Semaphore(_ASKED_COUNT_MAX)

        async def ask(topic: str) -> None:
            try:
                async with turns:
                    states = self._catalog.partitions.of(topic)
                    if all(state.leader != NO_LEADER for state in states):  # else it would be waited for
                        known[topic] = await sizes.of(topic)
            except GoQueueError as error:  # one of the broker's own, or its leaders do not answer
                logger.debug("sizes are not known topic=%s error=%r", topic, error.sentence)

        try:
            async with asyncio.timeout(_SIZES_S), asyncio.TaskGroup() as asking:
                for topic in topics:
                    asking.create_task(ask(topic))
        except TimeoutError:
            logger.info("not all sizes are known in time topics=%d", len(known))
        return known

    def _shares(self, moves: Sequence[Move], copied: dict[int, int | None]) -> list[NodeShare]:
        table = self._catalog.partitions
        replicas, leaders = Counter[int](), Counter[int]()
        for move in moves:
            replicas.update(move.after)
            replicas.subtract(move.before)
            leaders.update(move.after[:1])
            leaders.subtract(move.before[:1])
        return [
            NodeShare(
                node=node.name,
                replicas_before=table.replica_count(node.number),
                replicas_after=table.replica_count(node.number) + replicas[node.number],
                leaders_before=table.preferred_count(node.number),
                leaders_after=table.preferred_count(node.number) + leaders[node.number],
                copied_bytes=copied.get(node.number, 0),
            )
            for node in self._catalog.nodes()
        ]
