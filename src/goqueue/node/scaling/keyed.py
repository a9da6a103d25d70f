"""Everything that a node does for topics with `scaling=keyed` when records come in, put together."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence

from goqueue.core.catalog import Event
from goqueue.core.cluster.events import TopicShrunk
from goqueue.node.clock import Clock
from goqueue.node.commit import Spawn
from goqueue.node.dead_letters.open_moves import OpenMoves
from goqueue.node.directory import Directory
from goqueue.node.guard import Guard
from goqueue.node.local_topics import LocalTopics
from goqueue.node.metadata import Metadata
from goqueue.node.queue.ledgers import Ledgers
from goqueue.node.scaling.division import Division
from goqueue.node.scaling.draining import Draining
from goqueue.node.scaling.earlier import Earlier
from goqueue.node.scaling.fences import Fences
from goqueue.node.scaling.homes import Homes
from goqueue.node.scaling.parts import Parts
from goqueue.node.scaling.ports import RemoteParts
from goqueue.node.scaling.quiet import Quiet
from goqueue.node.schedule.intake import Intake
from goqueue.node.schedule.scheduler import Scheduler
from goqueue.node.topic_table import TopicTable


class KeyedTopics:
    def __init__(
        self,
        metadata: Metadata,
        table: TopicTable,
        local: LocalTopics,
        guard: Guard,
        directory: Directory,
        clock: Clock,
        scheduler: Scheduler,
        spawn: Spawn,
        remote: RemoteParts | None,
    ) -> None:
        """`remote` is None where this node is alone."""
        self._metadata = metadata
        self._table = table
        self._clock = clock
        self._scheduler = scheduler
        self._local = local
        self._spawn = spawn
        quiet, homes = Quiet(), Homes(metadata, table)
        intake = Intake(scheduler, clock)
        self.parts = Parts(homes, table, guard, directory, clock, intake, quiet, remote)
        self.earlier = Earlier(homes, self.parts)
        self.division = Division(homes, self.parts, quiet, self.earlier)
        self.fences = Fences(metadata, table, quiet, spawn)
        local.when_opened(self.fences.follow)
        scheduler.onward = self.division
        if remote is None:
            metadata.when_applied(self._note)

        self._draining: Draining | None = None

    def look_after(self, ledgers: Ledgers, moves: OpenMoves) -> None:
        """Nobody's records may go with a partition."""
        self._draining = Draining(self._metadata, self._table, self._clock, self._scheduler, ledgers, moves)

    def note_leadership(self, topic: str, index: int, is_leading: bool) -> None:
        """This node begins or ceases to lead a partition."""
        self.fences.note_leadership(topic, index, is_leading)
        if self._draining is not None:
            self._draining.note_leadership(topic, index, is_leading)

    def work(self) -> list[Coroutine[None, None, None]]:
        """What has to run all the time."""
        return [self.fences.run(), *([] if self._draining is None else [self._draining.run()])]

    def _note(self, events: Sequence[Event]) -> None:
        """A node alone follows what is asked of it; this is what nobody asks for."""
        for event in events:
            if isinstance(event, TopicShrunk):
                self._spawn(self._local.follow_at_last(event.name))
