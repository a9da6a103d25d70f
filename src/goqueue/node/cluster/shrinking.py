"""Brings the shrinking of topics with `scaling=keyed` to its end, on the node that is the controller for now.

When every partition has said where it ends, and no member of a group has a partition that it should not be given before it has
read others, the holds are released. When the partitions that are to go are drained (`node/scaling/draining.py`) and every group has read
them to their ends, and none of its members has them any more, they go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from goqueue.core.catalog import Catalog, Event
from goqueue.core.cluster.commands import FinishShrinking, ReleaseHolds
from goqueue.core.cluster.events import ScalingChanged
from goqueue.core.cluster.scaling import Gate, Scaling
from goqueue.core.group.gates import goes_back
from goqueue.model.errors import GoQueueError, InvalidPartitions
from goqueue.node.directory import Directory
from goqueue.node.groups.standing import GateLeft, Standings
from goqueue.node.internal_topics import OFFSETS_TOPIC
from goqueue.node.metadata import Metadata

logger = logging.getLogger(__name__)
_LOOK_S: Final = 0.5
_IDLE_S: Final = 5.0  # another node may have been the controller until now

Told = Standings | GoQueueError


class StandingsAsked(Protocol):
    async def of(self, topic: str, scaling: Scaling) -> Mapping[str, Told]:
        """By node, of all that are there."""


class Shrinking:
    def __init__(self, metadata: Metadata, directory: Directory, standings: StandingsAsked) -> None:
        self._metadata = metadata
        self._directory = directory
        self._standings = standings
        self._woken = asyncio.Event()
        metadata.when_applied(self._note)

    def _note(self, events: Sequence[Event]) -> None:
        if any(isinstance(event, ScalingChanged) for event in events):
            self._woken.set()

    async def check(self, topic: str, partition_count: int) -> None:
        """Refuse to shrink to so few where a group without members has not come to the last growth: it would have to read on in what
        stays before anybody may see what is added there."""
        scaling = self._catalog.scaling(topic)
        if scaling is None or scaling.stage != "steady":
            return  # or it is refused for that
        told = await self._standings.of(topic, scaling)
        absent = sorted(
            {
                group.group_id
                for one in told.values()
                if isinstance(one, Standings)
                for group in one.groups
                if not group.has_members and any(_goes_back(gate, partition_count) for gate in group.left)
            }
        )
        if absent:
            raise InvalidPartitions(
                f"topic {topic!r} has grown since groups without members read it last ({', '.join(absent)}): what they have not read "
                "would come out of order; let them read on, or delete them, and then have it shrink",
                groups=absent,
            )

    async def run(self) -> None:
        while True:
            under_way = self._under_way()
            try:
                async with asyncio.timeout(_LOOK_S if under_way else _IDLE_S):
                    await self._woken.wait()
            except TimeoutError:
                pass
            self._woken.clear()
            for topic, scaling in self._under_way().items():
                try:
                    await self._advance(topic, scaling)
                except GoQueueError as error:
                    logger.info("shrinking goes on later topic=%s error=%r", topic, error.sentence)

    def _under_way(self) -> dict[str, Scaling]:
        """What this node has to look after."""
        quorum = self._metadata.quorum
        if not (quorum.is_active or quorum.is_alone):
            return {}
        scalings = self._catalog.scalings()
        return {
            topic: one for topic, one in sorted(scalings.items()) if one.is_shrinking and not one.unfenced
        }

    @property
    def _catalog(self) -> Catalog:
        return self._metadata.catalog

    async def _advance(self, topic: str, scaling: Scaling) -> None:
        if scaling.stage == "draining" and scaling.undrained:
            return  # which may take as long as retention does: nobody is asked before
        facts = self._catalog.find(topic)
        told = await self._standings.of(topic, scaling)
        if facts is None or not self._is_whole(told):
            return
        groups = [group for one in told.values() if isinstance(one, Standings) for group in one.groups]
        if scaling.stage == "merging":
            waits_for = [group.group_id for group in groups if not group.is_settled]
            if not waits_for:
                await self._metadata.execute(ReleaseHolds(topic, facts.id))
                logger.info("every group knows its gates, and all is shown topic=%s", topic)
            return
        going = scaling.key_count
        if any(gate.behind >= going for group in groups for gate in group.left):
            return
        if not all(group.is_settled for group in groups):
            return
        if self._catalog.scaling(topic) == scaling:
            await self._metadata.execute(FinishShrinking(topic, facts.id))
            logger.info("a topic has shrunk topic=%s partitions=%d", topic, going)

    def _is_whole(self, told: Mapping[str, Told]) -> bool:
        """Whether all nodes know the topic as this one does, and every group was answered for by who coordinates it."""
        answers = {name: one for name, one in told.items() if isinstance(one, Standings) and one.is_current}
        if len(answers) < len(told):
            return False
        if self._catalog.find(OFFSETS_TOPIC) is None:
            return True  # there are no groups
        if self._directory.is_solo:
            (alone,) = answers.values()
            return len(alone.shards) == len(self._catalog.partitions_of(OFFSETS_TOPIC))
        for index, state in enumerate(self._catalog.partitions_of(OFFSETS_TOPIC)):
            leader = answers.get(self._directory.name_of(state.leader))
            if leader is None or index not in leader.shards:
                return False
        return True


def _goes_back(gate: GateLeft, partition_count: int) -> bool:
    return goes_back(Gate(gate.blocked, gate.behind, gate.until), partition_count)
