"""The controller's own work, on the node that is the controller for now: hear the heartbeats, fence who falls silent, give
partitions back to their preferred leaders."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from goqueue.core.catalog import Command, Event
from goqueue.core.cluster.balance import to_elect
from goqueue.core.cluster.commands import (
    AdvancePlan,
    DrainNode,
    ElectLeaders,
    FenceNode,
    NameCluster,
    RegisterNode,
    UnfenceNode,
)
from goqueue.core.cluster.liveness import Liveness, Status
from goqueue.core.cluster.nodes import NodeEntry, NodeState
from goqueue.model.cluster_errors import NotController
from goqueue.model.errors import GoQueueError
from goqueue.node.cluster.ports import Beat, BeatAnswer, Copying, Done, Join
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.config import ClusterConfig
from goqueue.node.ids import Ids
from goqueue.node.metadata import Metadata
from goqueue.node.monotonic import monotonic_ms

logger = logging.getLogger(__name__)
_PAUSE_S: Final = 0.5  # after a decision that failed
_ELECTION_COUNT_MAX: Final = 1_000


class Controller:
    def __init__(self, config: ClusterConfig, metadata: Metadata, quorum: Quorum, ids: Ids) -> None:
        self._config = config
        self._metadata = metadata
        self._quorum = quorum
        self._ids = ids
        self._liveness = Liveness(
            heartbeat_ms=config.heartbeat_ms, suspect_ms=config.suspect_ms, dead_ms=config.dead_ms
        )
        self._woken = asyncio.Event()
        self._balance_ms = 0
        self._copying: dict[str, list[Copying]] = {}  # by the node that leads them
        quorum.when_changed(self._woken.set)
        metadata.when_applied(self._note)

    # ---------------------------------------------------------------- what others ask

    async def join(self, join: Join) -> Done:
        self._require_active()
        command = RegisterNode(
            name=join.name,
            incarnation=join.incarnation,
            endpoints=join.endpoints,
            rack=join.rack,
            version=join.version,
            is_clean=join.is_clean,
            lost=join.lost,
        )
        done = await self._metadata.decide(command)
        self._liveness.heard(join.name, join.incarnation, monotonic_ms())
        self._set_observers()
        logger.info("node joined name=%s incarnation=%s clean=%s", join.name, join.incarnation, join.is_clean)
        return done

    async def beat(self, beat: Beat) -> BeatAnswer:
        self._require_active()
        node = self._metadata.catalog.node(beat.name)
        if node is None or node.incarnation != beat.incarnation:
            return self._answer(is_known=False, is_fenced=True)
        self._liveness.heard(beat.name, beat.incarnation, monotonic_ms(), is_leaving=beat.is_leaving)
        self._copying[beat.name] = beat.copying
        if beat.is_gone:
            await self._metadata.decide(FenceNode(beat.name, beat.incarnation))
            return self._answer(is_known=True, is_fenced=True, may_stop=True)
        if beat.is_leaving:
            return await self._let_leave(node)
        if beat.is_ready and node.state is NodeState.FENCED:
            await self._metadata.decide(UnfenceNode(beat.name, beat.incarnation))
            logger.info("node is ready name=%s", beat.name)
            node = self._metadata.catalog.node(beat.name) or node
        return self._answer(is_known=True, is_fenced=node.state is NodeState.FENCED)

    async def _let_leave(self, node: NodeEntry) -> BeatAnswer:
        if node.state is NodeState.ALIVE:
            await self._metadata.decide(DrainNode(node.name))
        may_stop = not self._metadata.catalog.led_by(node.number)
        return self._answer(is_known=True, is_fenced=False, may_stop=may_stop)

    def _answer(self, *, is_known: bool, is_fenced: bool, may_stop: bool = False) -> BeatAnswer:
        raft = self._quorum.raft
        return BeatAnswer(
            self._quorum.name, raft.term, is_known, is_fenced, may_stop, self._quorum.applied_index
        )

    def status(self, name: str) -> Status | None:
        """None where this node does not hear the heartbeats."""
        return self._liveness.status(name, monotonic_ms()) if self._quorum.is_active else None

    def silence_ms(self, name: str) -> int | None:
        """How long ago it was heard of, where this node hears the heartbeats."""
        at_ms = self._liveness.heard_ms(name) if self._quorum.is_active else None
        return None if at_ms is None else monotonic_ms() - at_ms

    def copying(self) -> list[Copying]:
        """What is being copied because it moves, as the heartbeats say."""
        self._require_active()
        return [one for name in sorted(self._copying) for one in self._copying[name]]

    def forget(self, name: str) -> None:
        """It has been removed."""
        self._copying.pop(name, None)
        self._liveness.forget(name)
        self._set_observers()

    def _require_active(self) -> None:
        if not self._quorum.is_active:
            leader = self._quorum.leader
            raise NotController(None if leader == self._quorum.name else leader)

    # ---------------------------------------------------------------- its own work

    def _note(self, events: Sequence[Event]) -> None:
        """While partitions are moved by a plan, anything may be what the next step waits for."""
        if self._metadata.catalog.plans.active() is not None:
            self._woken.set()

    async def run(self) -> None:
        term: int | None = None  # in which this node took office
        while True:
            self._woken.clear()
            raft = self._quorum.raft
            if not raft.is_leader:
                term = None
            elif self._quorum.is_active:
                if term != raft.term:
                    term = raft.term
                    self._begin()
                try:
                    await self._work()
                except GoQueueError as error:
                    logger.warning("the controller could not act error=%r", error.sentence)
                    await asyncio.sleep(_PAUSE_S)
            await self._rest(is_leader=raft.is_leader)

    def _begin(self) -> None:
        now_ms = monotonic_ms()
        self._liveness.begin(self._metadata.catalog.nodes(), now_ms)
        if self._quorum.last_leader is not None:  # it fell silent, or else it would still lead
            self._liveness.heard_before(*self._quorum.last_leader)
        self._balance_ms = now_ms
        self._copying = {}
        self._set_observers()
        logger.info("this node is the controller term=%d", self._quorum.raft.term)

    async def _rest(self, *, is_leader: bool) -> None:
        """Until something changes. Who leads looks every now and then: it may be about to know everything."""
        timeout_s = None
        if is_leader:
            next_ms = self._liveness.next_ms() if self._quorum.is_active else None
            wait_ms = self._config.heartbeat_ms if next_ms is None else next_ms - monotonic_ms()
            timeout_s = max(1, min(wait_ms, self._config.heartbeat_ms)) / 1_000
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _work(self) -> None:
        catalog, now_ms = self._metadata.catalog, monotonic_ms()
        if catalog.cluster_id is None:
            await self._metadata.decide(NameCluster(self._ids.fresh()))
        for name, incarnation in self._liveness.dead(now_ms):
            node = catalog.node(name)
            if node is not None and node.incarnation == incarnation and node.state is not NodeState.FENCED:
                logger.warning("node is fenced: it was not heard of name=%s", name)
                await self._decide(FenceNode(name, incarnation))
        plan = catalog.plans.active()
        if plan is not None:
            await self._decide(AdvancePlan(plan.id))
        if now_ms - self._balance_ms >= self._config.balance_ms:
            self._balance_ms = now_ms
            states = {node.number: node.state for node in catalog.nodes()}
            wanted = to_elect(catalog.astray(), states, count_max=_ELECTION_COUNT_MAX)
            if wanted:
                logger.info("partitions go back to their preferred leaders count=%d", len(wanted))
                await self._decide(ElectLeaders(wanted, "preferred"))

    async def _decide(self, command: Command) -> None:
        await self._metadata.decide(command)

    def _set_observers(self) -> None:
        voters = self._quorum.raft.voters
        names = [node.name for node in self._metadata.catalog.nodes() if node.name not in voters]
        self._quorum.set_observers(names)
