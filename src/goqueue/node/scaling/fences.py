"""Leaders follow the catalogue: they say where the old part of a partition ends, as soon as it is their turn.

From the moment a change is applied, nothing is appended that lives elsewhere (`homes.py`). So the end of the log is the fence,
whatever it is then, once all before it is committed under this leadership. If the leader dies before it has said so, the next
one says where its own log ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Final

from goqueue.core.catalog import Event
from goqueue.core.cluster.commands import FencePartition
from goqueue.core.cluster.events import ScalingChanged
from goqueue.core.cluster.scaling import Scaling
from goqueue.model.errors import GoQueueError
from goqueue.node.commit import Spawn
from goqueue.node.metadata import Metadata
from goqueue.node.partition import Partition
from goqueue.node.scaling.quiet import Quiet
from goqueue.node.tenure import Tenure
from goqueue.node.topic_table import OpenTopic, TopicTable

logger = logging.getLogger(__name__)
_PAUSE_S: Final = 0.2  # before what could not be done is tried again

Place = tuple[str, int]


class Fences:
    def __init__(self, metadata: Metadata, table: TopicTable, quiet: Quiet, spawn: Spawn) -> None:
        self._metadata = metadata
        self._table = table
        self._quiet = quiet
        self._spawn = spawn
        self._woken = asyncio.Event()
        self._busy: set[Place] = set()
        metadata.when_applied(self._note)
        metadata.when_restored(self._note_all)

    # ---------------------------------------------------------------- at once

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, ScalingChanged):
                topic = self._table.any_topic(event.topic)
                if topic is not None:
                    self.follow(topic)
                self._woken.set()

    def _note_all(self) -> None:
        for name in self._metadata.catalog.scalings():
            topic = self._table.any_topic(name)
            if topic is not None:
                self.follow(topic)
        self._woken.set()

    def follow(self, topic: OpenTopic) -> None:
        """What readers are shown of its partitions that run here, and which of them take keys of others: as the catalogue says."""
        scaling = self._metadata.catalog.scaling(topic.facts.name)
        if scaling is None:
            return
        for partition in topic.partitions:
            partition.show_until(scaling.hold_of(partition.index))
            self._quiet.began(partition)
            if _takes_newcomers(scaling, partition.index):
                self._quiet.opened(partition, scaling)
        self._woken.set()

    def note_leadership(self, topic: str, index: int, is_leading: bool) -> None:
        """This node begins or ceases to lead a partition."""
        scaling, found = self._metadata.catalog.scaling(topic), self._table.any_topic(topic)
        if scaling is None or found is None or not is_leading:
            return
        partition = found.local.get(index)
        if partition is not None:
            self._quiet.began(partition, is_new_leader=True)
            if _takes_newcomers(scaling, index):
                self._quiet.opened(partition, scaling, is_new_leader=True)
        self._woken.set()

    # ---------------------------------------------------------------- in their time

    async def run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            for place in self._due():
                if place not in self._busy:
                    self._busy.add(place)
                    self._spawn(self._fence(*place))

    def _due(self) -> Iterator[Place]:
        for name, scaling in self._metadata.catalog.scalings().items():
            for index in scaling.unfenced:
                if self._led(name, index) is not None:
                    yield name, index

    def _led(self, topic: str, index: int) -> Partition | None:
        """If it is this node's turn to fence it."""
        scaling, found = self._metadata.catalog.scaling(topic), self._table.any_topic(topic)
        if scaling is None or found is None or not scaling.may_fence(index):
            return None
        partition = found.local.get(index)
        is_led = partition is not None and (partition.is_solo or partition.leadership is not None)
        return partition if is_led else None

    async def _fence(self, topic: str, index: int) -> None:
        try:
            has_failed = False
            while (partition := self._led(topic, index)) is not None:
                try:
                    await self._fence_once(partition)
                except GoQueueError as error:
                    if not has_failed:
                        logger.warning(
                            "a partition cannot be fenced yet topic=%s partition=%d error=%r",
                            *(topic, index, error.sentence),
                        )
                    has_failed = True
                if self._led(topic, index) is not None:
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self._busy.discard((topic, index))

    async def _fence_once(self, partition: Partition) -> None:
        topic, index = partition.topic, partition.index
        await partition.lead()
        tenure = Tenure(partition)
        if self._led(topic, index) is not partition:
            return
        id, end = self._metadata.catalog.topic(topic).id, partition.log.end
        epoch = self._metadata.catalog.partition(topic, index).leader_epoch
        leadership = partition.leadership
        if leadership is not None and leadership.epoch != epoch:
            return  # somebody else leads, or will: the next look sees it
        await partition.settled(end, under=leadership)
        tenure.check()
        await self._metadata.execute(FencePartition(topic, id, index, epoch, end))
        logger.info("a partition is fenced topic=%s partition=%d offset=%d", topic, index, end)


def _takes_newcomers(scaling: Scaling, index: int) -> bool:
    """Whether it takes keys that are or were sent elsewhere, also if it goes and only sends them on."""
    if index >= scaling.key_count:
        return scaling.is_grown(index)
    if scaling.is_shrinking:
        return index not in scaling.unfenced
    return scaling.is_grown(index) and scaling.is_open(index)
