"""What an operator asks of a cluster, on whichever node."""

from __future__ import annotations

from typing import NamedTuple

from goqueue.core.cluster.commands import (
    AddVoter,
    DrainNode,
    ElectLeaders,
    RemoveNode,
    RemoveVoter,
    UndrainNode,
)
from goqueue.core.cluster.events import PartitionsChanged
from goqueue.node.metadata import Metadata


class Moved(NamedTuple):
    """A partition and the node that leads it now."""

    topic: str
    partition: int
    leader: int


class Operations:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def drain(self, name: str) -> None:
        """Others lead what the node of this name leads, until it is told to `undrain`; it keeps its replicas."""
        await self._metadata.execute(DrainNode(name))

    async def undrain(self, name: str) -> None:
        await self._metadata.execute(UndrainNode(name))

    async def remove(self, name: str) -> None:
        """For good: a node that is stopped, has no replicas and does not vote."""
        await self._metadata.execute(RemoveNode(name))

    async def add_voter(self, name: str) -> None:
        await self._metadata.execute(AddVoter(name))

    async def remove_voter(self, name: str) -> None:
        await self._metadata.execute(RemoveVoter(name))

    async def rebalance(self) -> list[Moved]:
        """Partitions go back to their preferred leaders wherever these are in sync."""
        events = await self._metadata.execute(ElectLeaders(None, "preferred"))
        return [
            Moved(change.topic, change.partition, change.leader)
            for event in events
            if isinstance(event, PartitionsChanged)
            for change in event.changes
        ]
