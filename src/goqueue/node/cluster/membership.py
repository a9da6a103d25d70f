"""This node as a member of the cluster: it joins when its process starts, says that it lives, and leaves in good order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from msgspec import structs

from goqueue.core.cluster.nodes import Endpoints, NodeEntry
from goqueue.model.cluster_errors import NameTaken, NotController, PeerUnreachable
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    DiskFull,
    GoQueueError,
    NotReady,
    PartitionOffline,
    StorageError,
    TimedOut,
)
from goqueue.node.cluster.controller import Controller
from goqueue.node.cluster.ports import Beat, BeatAnswer, Copying, Done, Join, PeerLinks
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.config import ClusterConfig
from goqueue.node.metadata import Metadata
from goqueue.node.monotonic import monotonic_ms

logger = logging.getLogger(__name__)
_PAUSE_S: Final = 0.1
_LEAVE_PAUSE_S: Final = 0.02
_PASSING: Final = (
    NotController,
    NotReady,
    PeerUnreachable,
    TimedOut,
    CoordinatorNotAvailable,
    # The controller's disk: it recovers, or another node becomes the controller.
    DiskFull,
    PartitionOffline,
    StorageError,
)


class Waiting:
    """When to say that somebody has been waiting: each time that a whole interval has passed, however many attempts were made
    in it."""

    def __init__(self, since_s: float, interval_s: float) -> None:
        self._since_s = since_s
        self._interval_s = interval_s
        self._report_s = since_s + interval_s

    def to_report_s(self, now_s: float) -> float | None:
        """How long it has been, where that is to be said now."""
        if now_s < self._report_s:
            return None
        self._report_s = now_s + self._interval_s
        return now_s - self._since_s


class Membership:
    def __init__(
        self,
        config: ClusterConfig,
        metadata: Metadata,
        quorum: Quorum,
        controller: Controller,
        links: PeerLinks,
        incarnation: str,
        version: str,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._quorum = quorum
        self._controller = controller
        self._links = links
        self._incarnation = incarnation
        self._version = version
        self.copying: Callable[[], list[Copying]] = list  # what heartbeats tell of the partitions that move
        self.is_full: Callable[[], bool] = bool  # whether the disk takes no writes
        self._join: Join | None = None  # what there is to say of this incarnation
        self._is_ready = False
        self._is_fenced = True
        self._is_leaving = False
        self._is_unheard = False
        self._heard_ms = monotonic_ms()  # when the last heartbeat that was answered was sent
        self._joined = asyncio.Event()
        self._unfenced = asyncio.Event()
        self._woken = asyncio.Event()

    def controller_heard_ms(self) -> int:
        """Until then at least this node was alive to the controller. To the controller itself: until when it was so to a
        majority."""
        followed_ms = self._quorum.raft.followed_ms(monotonic_ms())
        if followed_ms is not None:
            self._heard_ms = max(self._heard_ms, followed_ms)
        return self._heard_ms

    @property
    def has_joined(self) -> bool:
        return self._joined.is_set()

    @property
    def incarnation(self) -> str:
        return self._incarnation

    def begin_again(self, incarnation: str) -> None:
        """As if the process had started anew: what the controller knew of it holds no more. It joins next."""
        self._incarnation, self._join = incarnation, None

    async def join(
        self, endpoints: Endpoints, *, lost: list[tuple[str, int]], previous: list[str]
    ) -> NodeEntry:
        """Until a controller has taken it in and this node knows everything up to then. However long it takes: without a
        majority there is no controller. `previous` are the incarnations that the folder knows of."""
        self._join = Join(
            self._quorum.name,
            self._incarnation,
            endpoints,
            rack=self._config.rack,
            version=self._version,
            level=self._config.feature_level_max,
            lost=lost,
            previous=previous,
            is_again=self.has_joined,
        )
        return await self._taken_in(self._join)

    async def _taken_in(self, join: Join) -> NodeEntry:
        """A controller heeds only the first that it hears of an incarnation, so whoever joins says the same until one of them is
        answered: a heartbeat that finds the node not known must not get ahead of the news of what is lost. What was lost then
        may be there again later, and is not said once more."""
        done = await self._until_joined(join)
        if self._join is join:
            before = [each for each in join.previous if each != join.incarnation]
            self._join = structs.replace(join, lost=[], previous=[*before, join.incarnation], is_again=True)
        await self._quorum.until_applied(done.index)
        node = self._metadata.catalog.node(self._quorum.name)
        if node is None:
            raise CoordinatorNotAvailable(f"node {self._quorum.name!r} was removed while it joined")
        self._joined.set()
        return node

    async def _until_joined(self, join: Join) -> Done:
        wait_s = self._config.quorum_wait_ms / 1_000
        waiting = Waiting(asyncio.get_running_loop().time(), wait_s)
        attempt = 0
        while True:
            attempt += 1
            try:
                async with asyncio.timeout(wait_s):
                    leader = await self._whom_to_join(attempt)
                    if leader == self._quorum.name:
                        return await self._controller.join(join)
                    return await self._links.join(leader, join)
            except NameTaken as error:
                if join.is_again:
                    raise
                logger.error("this node cannot join error=%r", error.sentence)
                await asyncio.sleep(self._config.suspect_ms / 1_000)  # then the other one may be found dead
                waiting = Waiting(asyncio.get_running_loop().time(), wait_s)  # whoever said that has a quorum
            except _PASSING as error:
                logger.debug("not joined yet error=%r", error.sentence)
                await asyncio.sleep(_PAUSE_S)
            except TimeoutError:
                logger.debug("not joined yet error='no answer within %s s'", wait_s)
            waited_s = waiting.to_report_s(asyncio.get_running_loop().time())
            if waited_s is not None:
                voters = ",".join(self._quorum.raft.voters)
                logger.error("there is no quorum waited_s=%.0f voters=%s", waited_s, voters)

    async def _whom_to_join(self, attempt: int) -> str:
        """The controller. Who does not vote hears from it only after having joined, and until then asks the voters in turn."""
        voters = sorted(self._quorum.raft.voters)
        if self._quorum.leader is None and self._quorum.name not in voters:
            return voters[attempt % len(voters)]
        try:
            async with asyncio.timeout(2 * self._config.dead_ms / 1_000):
                return await self._quorum.until_led()
        except TimeoutError:  # it may have ceased to be one of them while it was away
            return voters[attempt % len(voters)]

    async def ready(self) -> None:
        """All that it holds is open: from now on it may lead. Back when the controller knows."""
        self._is_ready = True
        self._woken.set()
        await self._unfenced.wait()

    async def run(self) -> None:
        """The heartbeats, once it has joined."""
        await self._joined.wait()
        while True:
            self._woken.clear()
            try:
                sent_ms = monotonic_ms()
                answer = await self._beat(is_leaving=self._is_leaving)
                if answer.controller != self._quorum.name:
                    self._heard_ms = max(self._heard_ms, sent_ms)
                if not answer.is_known and self._join is not None:
                    await self._join_again(self._join)
                    continue
                self._note_fenced(answer.is_fenced)
                timeout_s = self._config.heartbeat_ms / 1_000
                self._is_unheard = False
            except _PASSING as error:
                if not self._is_unheard:
                    logger.info("no heartbeat is heard error=%r", error.sentence)
                self._is_unheard = True
                timeout_s = min(self._config.heartbeat_ms / 1_000, 5 * _PAUSE_S)
            except NameTaken:
                raise  # what a task of the node raises ends it
            except GoQueueError as error:
                logger.error("the controller refuses this node error=%r", error.sentence)
                timeout_s = self._config.heartbeat_ms / 1_000
            try:
                async with asyncio.timeout(timeout_s):
                    await self._woken.wait()
            except TimeoutError:
                pass

    async def _join_again(self, join: Join) -> None:
        """It was removed, or another process has its name: that one keeps it. It may be the next incarnation of this one, too, which joins while
        this is under way."""
        logger.warning("the controller does not know this node; it joins again")
        try:
            await self._taken_in(join)
        except NameTaken:
            if self._join is join:
                raise

    def _note_fenced(self, is_fenced: bool) -> None:
        self._is_fenced = is_fenced
        if not is_fenced:
            self._unfenced.set()

    def wake(self) -> None:
        """There is something that the controller should know now."""
        self._woken.set()

    async def leave(self, has_let_go: Callable[[], bool]) -> None:
        """Let others take over what this node leads, the quorum too, for as long as there is patience. `has_let_go`: it leads
        nothing any more, as far as it knows itself."""
        self._is_leaving = True
        try:
            async with asyncio.timeout(self._config.leave_ms / 1_000):
                while not (await self._asked_to_leave() and has_let_go()):  # noqa: ASYNC110 - asked again and again
                    await asyncio.sleep(_LEAVE_PAUSE_S)
                await self._hand_over()
        except (TimeoutError, GoQueueError) as error:
            logger.warning("this node stops although it may lead partitions error=%r", str(error))

    async def _asked_to_leave(self) -> bool:
        try:
            return (await self._beat(is_leaving=True)).may_stop
        except _PASSING as error:
            logger.info("nobody hears that this node leaves error=%r", error.sentence)
            return False

    async def _hand_over(self) -> None:
        if self._quorum.raft.is_leader:
            await self._quorum.hand_over()

    async def gone(self) -> None:
        """Nobody has to wait for this node any more: it has stopped."""
        if not self.has_joined:
            return
        try:
            async with asyncio.timeout(self._config.heartbeat_ms / 1_000):
                while not await self._told_that_it_is_gone():  # noqa: ASYNC110 - asked again and again
                    await asyncio.sleep(_LEAVE_PAUSE_S)
        except TimeoutError:
            logger.info("nobody has heard that this node is gone error='there is no controller'")
        except GoQueueError as error:
            logger.info("nobody has heard that this node is gone error=%r", error.sentence)

    async def _told_that_it_is_gone(self) -> bool:
        try:
            await self._beat(is_leaving=True, is_gone=True)
        except _PASSING:  # who has just been handed the quorum may not be the controller yet
            return False
        return True

    async def _beat(self, *, is_leaving: bool, is_gone: bool = False) -> BeatAnswer:
        beat = Beat(
            self._quorum.name,
            self._incarnation,
            self._quorum.applied_index,
            is_ready=self._is_ready,
            is_leaving=is_leaving,
            is_gone=is_gone,
            is_full=self.is_full(),
            copying=self.copying(),
            level=self._config.feature_level_max,
        )
        leader = self._quorum.leader
        if leader is None:
            raise NotController(None)
        if leader == self._quorum.name:
            return await self._controller.beat(beat)
        return await self._links.beat(leader, beat)
