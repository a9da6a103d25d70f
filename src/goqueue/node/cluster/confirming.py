"""Whether this node still leads, asked before it answers from memory.

A leader that was replaced goes on until it hears of it, which over a slow link takes its time. What it writes is refused by its
followers. What it only tells from memory nobody would refuse: a member told how far its group had come a while ago would do again what was
done since, and the end of a transaction would be taken for that of the one before. So whoever wants to tell such things asks the controller
how far the decisions go, and waits until that much is applied here: its successor began after it was decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from goqueue.core.cluster.partitions import PartitionState
from goqueue.model.cluster_errors import NotCoordinator
from goqueue.model.errors import GoQueueError, RouteNotFound
from goqueue.node.cluster.ports import PeerLinks
from goqueue.node.commit import Spawn
from goqueue.node.metadata import Metadata
from goqueue.node.replication.replication import Replication
from goqueue.node.shared_round import SharedRound

Confirm = Callable[[str, int], Awaitable[None]]

_PATIENCE_S: Final = 4.0  # less than any client waits for an answer
_PAUSE_S: Final = 0.05  # before a controller is asked again


class Confirming:
    def __init__(self, metadata: Metadata, links: PeerLinks, replication: Replication, spawn: Spawn) -> None:
        self._metadata = metadata
        self._links = links
        self._replication = replication
        self._round = SharedRound(self._known_index, spawn)

    async def until_sure(self, topic: str, index: int) -> None:
        """That nobody else has led the partition before this was asked, where this node does; NotCoordinator where that is not so or
        is not known."""
        if not self._replication.leads(topic, index):
            return  # which everybody here knows
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._metadata.quorum.until_applied(await self._round.ask())
        except TimeoutError:
            raise _doubtful(topic, index, "the controller has not said") from None
        except GoQueueError as error:
            raise _doubtful(topic, index, error.sentence) from error
        if not self._is_led(topic, index, self._metadata.catalog.partitions.find(topic, index)):
            raise _doubtful(topic, index, "it is decided that it does not, or does anew")

    def _is_led(self, topic: str, index: int, state: PartitionState | None) -> bool:
        """What is applied is followed a moment later."""
        leadership = self._replication.leadership(topic, index)
        if leadership is None or state is None:
            return False
        return (state.leader, state.leader_epoch) == (self._replication.number, leadership.epoch)

    async def _known_index(self) -> int:
        """Of the last decision that had been made when this was called."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
        while True:
            try:
                return await self._ask()
            except GoQueueError:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _ask(self) -> int:
        quorum = self._metadata.quorum
        leader = await quorum.until_led()
        if leader == quorum.name:
            return await quorum.confirmed_index()
        try:
            return (await self._links.confirmed(leader)).index
        except RouteNotFound:  # a version from before one could ask; it leads in all likelihood
            return (await self._links.state(leader)).commit_index


def _doubtful(topic: str, index: int, reason: str) -> NotCoordinator:
    return NotCoordinator(
        f"whether this node still leads {topic}-{index} is not known, or it does not: {reason}; ask which one does",
        partition=index,
    )
