"""What companions hold is loaded where this node begins to lead their partition, and dropped where it ceases to."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import GoQueueError, PartitionNotFound, TopicNotFound
from goqueue.node.commit import Spawn
from goqueue.node.companions import Companion, Companions

logger = logging.getLogger(__name__)
_PAUSE_S: Final = 0.5  # before what could not be read is tried again


class Keeper(Protocol):
    """Who keeps the states of one kind of companion."""

    async def open(self, topic: str, index: int) -> object: ...

    def drop(self, topic: str, index: int) -> None:
        """Nobody may write or wait there any more."""


class CompanionLoader:
    def __init__(self, kind: Companion, keeper: Keeper, companions: Companions, spawn: Spawn) -> None:
        self._kind = kind
        self._keeper = keeper
        self._companions = companions
        self._spawn = spawn

    def note(self, topic: str, index: int, is_leading: bool) -> None:
        """This node begins or ceases to lead a partition."""
        if not is_leading:
            self._keeper.drop(topic, index)
        elif self._companions.has(self._kind, topic, index):
            self._spawn(self._load(topic, index))

    async def _load(self, topic: str, index: int) -> None:
        """Until it is there or another node leads."""
        has_failed = False
        while True:
            try:
                await self._keeper.open(topic, index)
                return
            except (NotLeader, TopicNotFound, PartitionNotFound):
                return
            except GoQueueError as error:
                if not has_failed:
                    logger.error(
                        "a companion cannot be read kind=%s topic=%s partition=%d error=%r",
                        *(self._kind.kind, topic, index, error.sentence),
                    )
                has_failed = True
                await asyncio.sleep(_PAUSE_S)
