"""What this node does not know may exist all the same: it may have been made through another node a moment ago. So before a
client is told that there is no such thing, the controller is asked how far the catalogue goes, and that much is waited for.

Whoever finds something missing shares a round with others, and there is a pause between two, so that those who ask for what was
never there cost little.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from goqueue.model.errors import GoQueueError
from goqueue.node.cluster.ports import PeerLinks
from goqueue.node.commit import Spawn
from goqueue.node.local_topics import LocalTopics
from goqueue.node.metadata import Metadata
from goqueue.node.shared_round import SharedRound
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
_PATIENCE_S: Final = 1.0
_PAUSE_S: Final = 0.05


class CatchingUp:
    def __init__(
        self, metadata: Metadata, links: PeerLinks | None, local: LocalTopics, table: TopicTable, spawn: Spawn
    ) -> None:
        """`links` is None where this node is alone, and so knows everything."""
        self._metadata = metadata
        self._links = links
        self._local = local
        self._table = table
        self._spawn = spawn
        self._round = SharedRound(self._catch_up, spawn, pause_s=_PAUSE_S)

    async def until_known(self, topic: str, partition: int = 0) -> None:
        """Until this node has the topic, or as much of the catalogue as there is, or patience ends. Never raises."""
        if self._links is None or self._has(topic, partition):
            return
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._round.ask()
                # Patience may end, but not what has been begun: a topic is not left half opened.
                await asyncio.wait([self._spawn(self._follow(topic))])
        except TimeoutError:
            pass  # then it is as this node knows it

    async def _follow(self, topic: str) -> None:
        try:
            await self._local.follow(topic)
        except (GoQueueError, OSError) as error:
            logger.info("a topic is not opened yet topic=%s error=%r", topic, str(error))

    def _has(self, topic: str, partition: int) -> bool:
        found = self._table.any_topic(topic)
        return found is not None and partition < found.partition_count

    async def _catch_up(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._metadata.quorum.until_applied(await self._known_index())
        except (TimeoutError, GoQueueError):
            pass

    async def _known_index(self) -> int:
        """Of the last decision that the controller knows to be committed."""
        quorum, links = self._metadata.quorum, self._links
        leader = await quorum.until_led()
        if leader == quorum.name or links is None:
            return quorum.raft.commit_index
        return (await links.state(leader)).commit_index
