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
    RaiseLevel,
    RegisterNode,
    RelieveNodes,
    UnfenceNode,
)
from goqueue.core.cluster.events import NodeRemoved
from goqueue.core.cluster.levels import LEVEL_OLDEST, VOTERS_LEVEL
from goqueue.core.cluster.liveness import Liveness, Status
from goqueue.core.cluster.membership import is_put_back
from goqueue.core.cluster.nodes import NodeEntry, NodeState
from goqueue.model.cluster_errors import NameTaken, NotController
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
        self._full: set[str] = set()  # nodes whose disks take no writes
        self._levels: dict[
            str, tuple[str, int]
        ] = {}  # of features, that each node understands in an incarnation
        self.fenced_count = 0  # of nodes that were not heard of, by this process
        quorum.when_changed(self._woken.set)
        metadata.when_applied(self._note)

    # ---------------------------------------------------------------- what others ask

    async def join(self, join: Join) -> Done:
        self._require_active()
        self._refuse_namesake(join)
        command = RegisterNode(
            name=join.name,
            incarnation=join.incarnation,
            endpoints=join.endpoints,
            rack=join.rack,
            version=join.version,
            level=join.level,
            lost=join.lost,
            previous=join.previous,
            is_again=join.is_again,
        )
        is_older = is_put_back(self._metadata.catalog.node(join.name), command)
        done = await self._metadata.decide(command)
        if is_older:
            logger.warning(
                "the folder of a node is older than the node; what it holds counts as lost name=%s", join.name
            )
        self._liveness.heard(join.name, join.incarnation, monotonic_ms())
        self._note_level(join.name, join.incarnation, join.level)
        self._set_observers()
        logger.info("node joined name=%s incarnation=%s lost=%d", join.name, join.incarnation, len(join.lost))
        return done

    def _refuse_namesake(self, join: Join) -> None:
        """Whoever has started again is where it was, or has not been heard of for so long that it is dead. One that is only suspected may be
        standing still, and go on."""
        node = self._metadata.catalog.node(join.name)
        if node is None or node.incarnation == join.incarnation or node.state is NodeState.FENCED:
            return
        there, here = node.endpoints.cluster, join.endpoints.cluster
        if there != here and self.status(join.name) is not Status.DEAD:
            raise NameTaken(join.name, there, here)

    async def beat(self, beat: Beat) -> BeatAnswer:
        self._require_active()
        node = self._metadata.catalog.node(beat.name)
        if node is None or node.incarnation != beat.incarnation:
            return self._answer(is_known=False, is_fenced=True)
        self._liveness.heard(beat.name, beat.incarnation, monotonic_ms(), is_leaving=beat.is_leaving)
        self._copying[beat.name] = beat.copying
        self._note_full(beat.name, is_full=beat.is_full)
        self._note_level(beat.name, beat.incarnation, beat.level)
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

    def _note_full(self, name: str, *, is_full: bool) -> None:
        if is_full != (name in self._full):
            logger.warning("the disk of a node %s writes name=%s", "takes no" if is_full else "takes", name)
            self._full ^= {name}
            self._woken.set()

    def _note_level(self, name: str, incarnation: str, level: int) -> None:
        if self._levels.get(name) != (incarnation, level):
            self._levels[name] = (incarnation, level)
            self._woken.set()

    def level_of(self, name: str) -> int | None:
        """The feature level that a node understands, where this node hears the heartbeats."""
        return self._levels[name][1] if self._quorum.is_active and name in self._levels else None

    async def _let_leave(self, node: NodeEntry) -> BeatAnswer:
        if node.state is NodeState.ALIVE:
            await self._metadata.decide(DrainNode(node.name))
        may_stop = not self._metadata.catalog.partitions.leader_count(node.number)
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

    def _forget(self, name: str) -> None:
        """It has been removed."""
        self._copying.pop(name, None)
        self._full.discard(name)
        self._levels.pop(name, None)
        self._liveness.forget(name)
        self._set_observers()
        self._woken.set()

    def _require_active(self) -> None:
        if not self._quorum.is_active:
            leader = self._quorum.leader
            raise NotController(None if leader == self._quorum.name else leader)

    # ---------------------------------------------------------------- its own work

    def _note(self, events: Sequence[Event]) -> None:
        """While partitions are moved by a plan, anything may be what the next step waits for."""
        for event in events:
            if isinstance(event, NodeRemoved):
                self._forget(event.name)
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
        self._copying, self._full, self._levels = {}, set(), {}
        self._set_observers()
        logger.info("this node is the controller term=%d", self._quorum.raft.term)

    async def _rest(self, *, is_leader: bool) -> None:
        """Until something changes. Who leads looks every now and then: it may be about to know everything."""
        timeout_s = None
        if is_leader:
            next_ms = self._liveness.next_ms() if self._quorum.is_active else None
            wait_ms = self._config.heartbeat_ms if next_ms is None else next_ms - monotonic_ms()
            timeout_s = max(1, min(wait_ms, self._config.heartbeat_ms)) / 1_000
        rested_ms = monotonic_ms()
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            pass
        if timeout_s is not None:
            now_ms = monotonic_ms()
            stall_ms = now_ms - rested_ms - int(timeout_s * 1_000)
            if stall_ms >= self._config.heartbeat_ms:
                logger.warning("the controller stood still stall_ms=%d", stall_ms)
                self._liveness.excuse(stall_ms, now_ms)

    async def _work(self) -> None:
        catalog, now_ms = self._metadata.catalog, monotonic_ms()
        if catalog.cluster_id is None:
            await self._metadata.decide(NameCluster(self._ids.fresh()))
        await self._agree_on_features()
        for name, incarnation in self._liveness.dead(now_ms):
            node = catalog.node(name)
            if node is not None and node.incarnation == incarnation and node.state is not NodeState.FENCED:
                logger.warning("node is fenced: it was not heard of name=%s", name)
                await self._decide(FenceNode(name, incarnation))
                self.fenced_count += 1
        full = [node.number for node in catalog.nodes() if node.name in self._full]
        if full:
            await self._decide(RelieveNodes(full))
        plan = catalog.plans.active()
        if plan is not None:
            await self._decide(AdvancePlan(plan.id))
        if now_ms - self._balance_ms >= self._config.balance_ms:
            self._balance_ms = now_ms
            states = {node.number: self._leading_state(node) for node in catalog.nodes()}
            wanted = to_elect(catalog.astray(), states, count_max=_ELECTION_COUNT_MAX)
            if wanted:
                logger.info("partitions go back to their preferred leaders count=%d", len(wanted))
                await self._decide(ElectLeaders(wanted, "preferred"))

    async def _agree_on_features(self) -> None:
        """Raise the level as far as all nodes understand it. With that the log may say who votes, whatever is configured later."""
        catalog, raft = self._metadata.catalog, self._quorum.raft
        heard = [self._levels.get(node.name, ("", LEVEL_OLDEST)) for node in catalog.nodes()]
        level = min((level for _, level in heard), default=LEVEL_OLDEST)
        if level > catalog.level:
            logger.info("the feature level is raised level=%d", level)
            await self._decide(RaiseLevel(level, {name: at for name, (at, _) in self._levels.items()}))
        if catalog.level >= VOTERS_LEVEL and not raft.are_voters_written and not self._quorum.is_alone:
            await self._quorum.change_voters(raft.voters)

    def _leading_state(self, node: NodeEntry) -> NodeState:
        """One whose disk is full gives its leaderships away: it gets none back as long as that is so."""
        is_full = node.state is NodeState.ALIVE and node.name in self._full
        return NodeState.DRAINING if is_full else node.state

    async def _decide(self, command: Command) -> None:
        await self._metadata.decide(command)

    def _set_observers(self) -> None:
        """All nodes: who votes now may not do so for ever, and must hear of that."""
        self._quorum.set_observers([node.name for node in self._metadata.catalog.nodes()])
