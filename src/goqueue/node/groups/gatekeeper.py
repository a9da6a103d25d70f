"""Has groups rebalance when their gates open or new ones come (`core/group/gates.py`).

Watched are the groups of this node that have members and are not given everything they read. They are looked at when
something changes and every second: a gate may open without a commit, because nothing is left to be read before it, or because a
group that never commits has waited long enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from goqueue.core.catalog import Catalog, TopicDeleted
from goqueue.core.catalog import Event as CatalogEvent
from goqueue.core.cluster.events import ScalingChanged, TopicShrunk
from goqueue.core.cluster.scaling import Gate, Scaling
from goqueue.core.group.commands import Done, FollowGates
from goqueue.core.group.consumer_events import ConsumerGroupAdvanced, MemberSubscribed
from goqueue.core.group.events import Event, GroupSaved, OffsetCommitted
from goqueue.core.group.gates import unpassed
from goqueue.core.group.shard import GroupShard
from goqueue.model.cluster_errors import NotCoordinator
from goqueue.model.errors import GoQueueError
from goqueue.node.commit import Spawn
from goqueue.node.groups.gate_reading import GateReading
from goqueue.node.groups.groups import Groups
from goqueue.node.groups.shard import OwnedGroups

logger = logging.getLogger(__name__)
_LOOK_S: Final = 1.0
_CLOSE_COUNT: Final = 64  # records before a gate: what is left may be no records at all
_PAUSE_S: Final = 0.05  # between looks, however much is committed
_COMMITTING_FACTOR: Final = (
    10  # so much longer is a group waited for that has ever committed in the topic: it is only slow
)


class _Watched:
    """A group that is not given everything."""

    def __init__(self) -> None:
        self.committed: dict[tuple[str, int], tuple[int | None, float]] = {}  # by place, and since when
        self.lacking: dict[tuple[str, Gate], float] = {}  # without any commit behind the gate, since when
        self.active_s = 0.0  # when it committed last, whatever


class Gatekeeper:
    def __init__(
        self,
        groups: Groups,
        catalog: Callable[[], Catalog],
        reading: GateReading,
        spawn: Spawn,
        *,
        wait_ms: int,
    ) -> None:
        """`wait_ms`: so long is a group with members waited for that is given a partition and commits nothing."""
        self._groups = groups
        self._shards = groups.shards
        self._catalog = catalog
        self._reading = reading
        self._spawn = spawn
        self._wait_s = wait_ms / 1_000
        self._watched: dict[str, _Watched] = {}
        self._due: dict[str, None] = {}  # to be looked at now
        self._woken = asyncio.Event()
        groups.when_changed(self._note)
        self._shards.when_loaded(self._note_shard)

    # ---------------------------------------------------------------- what happens

    def note_catalog(self, events: Sequence[CatalogEvent]) -> None:
        """What the catalogue has applied."""
        for event in events:
            match event:
                case ScalingChanged():
                    if event.scaling.begun_count < event.scaling.partition_count:
                        self._spawn(self._forget_the_past(event.topic))
                    self.note_all()
                case TopicShrunk():
                    self._spawn(self._groups.topic_shrunk(event.name, event.partition_count))
                case TopicDeleted():
                    self._shards.notes.forget_topic(event.name)

    async def _forget_the_past(self, topic: str) -> None:
        """Partitions that begin may have the numbers of others, of which offsets have remained."""
        scaling = self._catalog().scaling(topic)
        if scaling is not None and scaling.begun_count < scaling.partition_count:
            await self._groups.topic_shrunk(topic, scaling.begun_count)

    def note_all(self) -> None:
        """Of all groups: the catalogue may be another."""
        for shard in self._shards.all():
            self._note_shard(shard)

    def _note_shard(self, shard: OwnedGroups) -> None:
        state = shard.state
        for group_id in [*state.classic, *state.consumers.ids()]:
            self._look_soon(group_id)

    def _note(self, events: Sequence[Event], is_due: bool) -> None:
        for event in events:
            match event:
                case GroupSaved() if event.members:
                    self._look_soon(event.group_id)
                case ConsumerGroupAdvanced() | MemberSubscribed():
                    self._look_soon(event.group_id)
                case OffsetCommitted() if event.group_id in self._watched:
                    self._watched[event.group_id].active_s = asyncio.get_running_loop().time()
                    self._look_soon(event.group_id)

    def _look_soon(self, group_id: str) -> None:
        self._due[group_id] = None
        self._woken.set()

    # ---------------------------------------------------------------- looking

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_LOOK_S if self._watched else None):
                    await self._woken.wait()
                due, self._due = self._due, {}
            except TimeoutError:  # something may be due at the same moment
                due, self._due = self._due | dict.fromkeys(self._watched), {}
            self._woken.clear()
            scalings = self._gated_topics()
            for group_id in due:
                await self._look(group_id, scalings)
            await asyncio.sleep(_PAUSE_S)

    def _gated_topics(self) -> dict[str, Scaling]:
        scalings = self._catalog().scalings()
        return {topic: one for topic, one in scalings.items() if one.gates or one.unfenced}

    async def _look(self, group_id: str, scalings: dict[str, Scaling]) -> None:
        try:
            is_watched = await self._follow(group_id, scalings)
        except NotCoordinator:
            is_watched = False
        except GoQueueError as error:
            logger.info(
                "the gates of a group are looked at again group=%s error=%r", group_id, error.sentence
            )
            is_watched = True
        if is_watched:
            self._watched.setdefault(group_id, _Watched())
        else:
            self._watched.pop(group_id, None)

    async def _follow(self, group_id: str, scalings: dict[str, Scaling]) -> bool:
        """Whether it is to be looked at again."""
        state = self._shards.state(group_id)
        if not state.has_members(group_id):
            self._shards.notes.forget_group(group_id)
            return False
        topics = [topic for topic in scalings if _reads(state, group_id, topic)]
        for topic in topics:
            await self._look_behind(state, group_id, topic, scalings[topic])
        if state.is_astray(group_id):
            await self._shards.ask(group_id, FollowGates(group_id), Done)
            logger.info("a group rebalances, for its gates have changed group=%s", group_id)
        classic = state.classic.get(group_id)
        is_short = classic is not None and bool(classic.withheld)
        return is_short or any(state.gates.blocked(group_id, topic) for topic in topics)

    async def _look_behind(self, state: GroupShard, group_id: str, topic: str, scaling: Scaling) -> None:
        """Ask leaders where a commit is close to a gate or none has come for a while, and give up waiting for commits that
        never come."""
        progress = state.gates.progress(group_id, topic)
        watched = self._watched.setdefault(group_id, _Watched())
        blocked = state.gates.blocked(group_id, topic)
        commits = state.offsets.has_any(group_id, topic)
        wait_s = self._wait_s * (_COMMITTING_FACTOR if commits else 1)
        for gate in unpassed(scaling, progress):
            committed, now = progress.committed(gate.behind), asyncio.get_running_loop().time()
            is_new = (topic, gate.behind) not in watched.committed
            before, since = watched.committed.get((topic, gate.behind), (None, now))
            if committed != before or is_new:
                since = now
            watched.committed[topic, gate.behind] = committed, since
            is_close = committed is not None and gate.until - committed <= _CLOSE_COUNT
            is_urgent = is_new or scaling.stage == "draining"
            if (is_close or is_urgent or now - since >= _LOOK_S) and await self._reading.look(
                topic, gate, committed or 0
            ):
                self._shards.notes.note_left(group_id, topic, gate)
            is_given = gate.behind not in blocked
            if committed is not None or not is_given or progress.is_read_out(gate, 0):
                watched.lacking.pop((topic, gate), None)
            elif now - max(watched.lacking.setdefault((topic, gate), now), watched.active_s) >= wait_s:
                self._waive(group_id, topic, gate)

    def _waive(self, group_id: str, topic: str, gate: Gate) -> None:
        if not self._shards.notes.is_waived(group_id, topic, gate):
            self._shards.notes.note_waived(group_id, topic, gate)
            logger.warning(
                "a group commits nothing and gets a new partition all the same group=%s topic=%s partition=%d behind=%d",
                *(group_id, topic, gate.blocked, gate.behind),
            )


def _reads(state: GroupShard, group_id: str, topic: str) -> bool:
    readers = state.classic.get(group_id), state.consumers.get(group_id)
    return any(one is not None and one.is_subscribed(topic) for one in readers)
