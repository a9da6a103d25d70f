"""What this node does for each partition that it holds: lead it, or follow whoever does. The controller says which."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from msgspec import Struct

from goqueue.core.cluster.partitions import NO_LEADER, PartitionState
from goqueue.log.disk import Disk
from goqueue.model.errors import GoQueueError
from goqueue.node.clock import Clock
from goqueue.node.cluster.ports import PeerLinks
from goqueue.node.commit import Spawn
from goqueue.node.config import ClusterConfig
from goqueue.node.monotonic import monotonic_ms
from goqueue.node.partition import Partition
from goqueue.node.replication.contact import Contact
from goqueue.node.replication.following import Follower, NameOf, UncleanEpochOf
from goqueue.node.replication.in_sync import Fenced, InSyncKeeper, Propose
from goqueue.node.replication.leadership import Leadership
from goqueue.node.replication.serving import ReplicaServer
from goqueue.node.replication.throttle import LimitOf, MoveThrottle
from goqueue.node.threads import Threads
from goqueue.node.topic_table import TopicTable

logger = logging.getLogger(__name__)
Place = tuple[str, int]
LeadershipWatcher = Callable[[str, int, bool], None]  # topic, partition, whether this node leads it now
# Another controller is there after twice `dead_ms` at most, and lets those go on who wait. Who is told before that it is not known
# what becomes of its messages sends them again, and if it has no producer id they are stored twice.
_SILENT_FACTOR: Final = 3
_AGAIN_S: Final = 1.0  # before a log is tried to be led again


class ReplicationCounts(Struct, frozen=True):
    """By this process. In-sync sets are those of partitions that it led before and after the change."""

    shrunk: int
    expanded: int
    sent_bytes: int
    taken_bytes: int


class Replication:
    def __init__(
        self,
        config: ClusterConfig,
        table: TopicTable,
        links: PeerLinks,
        disk: Disk,
        threads: Threads,
        clock: Clock,
        spawn: Spawn,
        *,
        name_of: NameOf,
        propose: Propose,
        fenced: Fenced,
        limit_of: LimitOf,
        unclean_epoch_of: UncleanEpochOf,
        controller_heard_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._links = links
        self._disk = disk
        self._threads = threads
        self._clock = clock
        self._spawn = spawn
        self._name_of = name_of
        self._throttle = MoveThrottle(limit_of)
        self._unclean_epoch_of = unclean_epoch_of
        self.number = NO_LEADER  # of this node; known once it has joined
        self._leaderships: dict[Place, Leadership] = {}
        self._followers: dict[int, Follower] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._watchers: list[LeadershipWatcher] = []
        self._shrunk_count = self._expanded_count = 0
        self.server = ReplicaServer(
            table,
            when_joinable=lambda _: self._keeper.wake(),
            when_begun=self._forget_positions,
            hurries=config.follower_reads,
        )
        self._keeper = InSyncKeeper(
            self._leaderships,
            self.server.heard_ms,
            propose,
            fenced,
            lag_ms_max=config.replica_lag_ms_max,
        )
        self._contact = Contact(
            self._leaderships,
            self.server.heard_ms,
            controller_heard_ms,
            heartbeat_ms=config.heartbeat_ms,
            silent_ms=_SILENT_FACTOR * config.dead_ms,
        )

    def work(self) -> list[Coroutine[None, None, None]]:
        """What has to run all the time."""
        return [self._keeper.run(), self._contact.run()]

    @property
    def has_joined(self) -> bool:
        """It is known who this node is, and everything up to then; before that it may hold what an old catalogue has not."""
        return self.number != NO_LEADER

    def when_leading(self, watcher: LeadershipWatcher) -> None:
        """It is called with every partition of a topic (no companions) that this node begins or ceases to lead; it may
        not wait."""
        self._watchers.append(watcher)

    def note_unfenced(self) -> None:
        """A node has been let in that may have caught up before."""
        self._keeper.wake()

    def note_started(self, number: int) -> None:
        """Another process runs on a node than before, perhaps on an empty disk. This has to be told before the partitions' epochs that were
        counted up with it: whoever is proposed under these was heard of since."""
        self.server.end_all(number)

    def leads(self, topic: str, index: int) -> bool:
        return (topic, index) in self._leaderships

    def led(self) -> list[Place]:
        return list(self._leaderships)

    def leadership(self, topic: str, index: int) -> Leadership | None:
        return self._leaderships.get((topic, index))

    def counts(self) -> ReplicationCounts:
        return ReplicationCounts(
            self._shrunk_count,
            self._expanded_count,
            self.server.sent_bytes,
            sum(follower.taken_bytes for follower in self._followers.values()),
        )

    def lag_ms(self) -> int:
        """For how long the follower that is furthest behind has not had everything that this node leads. It looks at every one."""
        now_ms, heard_ms = monotonic_ms(), self.server.heard_ms
        return max(
            (one.replicas.lag_ms(now_ms, heard_ms) for one in self._leaderships.values()),
            default=0,
        )

    async def assign(
        self, place: Place, partitions: Sequence[Partition], state: PartitionState, *, min_in_sync: int
    ) -> None:
        """The partition and its companions, as the catalogue has them now. May be repeated."""
        known = self._leaderships.get(place)
        if state.leader == self.number:
            if known is not None and known.epoch == state.leader_epoch:
                known.expect(partitions)
                self._count_change(known.replicas.state, state)
                known.update(state, min_in_sync=min_in_sync)
                for partition in partitions:
                    if partition.leadership is not known:
                        await self._take_over(partition, known)
                return
            await self._begin(place, partitions, state, min_in_sync)
            return
        leader = None if state.leader == NO_LEADER else state.leader
        for partition in partitions:
            if partition.leadership is not None or (partition.leader, partition.leader_epoch) != (
                leader,
                state.leader_epoch,
            ):
                await self._leave(partition)
                partition.follow(leader, state.leader_epoch)
                if leader is not None:
                    self._follower(leader).put(partition)
            elif leader is not None:
                is_counted_on = self.number in (*state.in_sync, *state.eligible)
                self._follower(leader).look_again(partition, is_counted_on=is_counted_on)
        if self._leaderships.pop(place, None) is not None:
            self._tell(place, is_leading=False)

    async def drop(self, place: Place, partitions: Sequence[Partition]) -> None:
        """This node holds it no longer."""
        was_leading = self._leaderships.pop(place, None) is not None
        for partition in partitions:
            await self._leave(partition)
            partition.follow(None, partition.leader_epoch)
        await asyncio.sleep(0)  # whoever waits here is told that another leads, before it is as if deleted
        if was_leading:
            self._tell(place, is_leading=False)

    async def _begin(
        self, place: Place, partitions: Sequence[Partition], state: PartitionState, min_in_sync: int
    ) -> None:
        was_leading = self._leaderships.pop(place, None) is not None
        if was_leading:
            self._tell(place, is_leading=False)
        leadership = Leadership(
            self.number,
            state,
            min_in_sync=min_in_sync,
            now_ms=monotonic_ms(),
            when_changed=self.server.changed,
            when_failed=self._keeper.wake,
        )
        leadership.expect(partitions)
        self._leaderships[place] = leadership
        for partition in partitions:
            await self._take_over(partition, leadership)
        logger.info("leading topic=%s partition=%d epoch=%d", *place, state.leader_epoch)
        self._tell(place, is_leading=True)

    async def _take_over(self, partition: Partition, leadership: Leadership) -> None:
        await self._leave(partition)
        partition.take_over(leadership)
        if not await self._has_begun(partition):
            self._spawn(self._begin_later(partition, leadership))

    async def _has_begun(self, partition: Partition) -> bool:
        try:
            await partition.lead()
        except GoQueueError as error:
            logger.error(
                "a partition cannot be led topic=%s partition=%d error=%r",
                *(partition.topic, partition.index, error.sentence),
            )
            return False
        return True

    async def _begin_later(self, partition: Partition, leadership: Leadership) -> None:
        """The disk was slow or refused it. Whoever writes next tries again, too, but to a companion nobody may; and before all logs of
        a partition have begun, nobody can become in sync."""
        while True:
            await asyncio.sleep(_AGAIN_S)
            if partition.leadership is not leadership or partition.is_led or await self._has_begun(partition):
                return

    async def _leave(self, partition: Partition) -> None:
        follower = self._followers.get(partition.leader) if partition.leader is not None else None
        if follower is not None:
            await follower.remove(partition)

    async def stop(self) -> None:
        """Nothing more is taken from other nodes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _follower(self, leader: int) -> Follower:
        follower = self._followers.get(leader)
        if follower is None:
            follower = self._followers[leader] = Follower(
                leader,
                self._name_of,
                self._links,
                self._disk,
                self._threads,
                self._clock,
                self._throttle,
                unclean_epoch_of=self._unclean_epoch_of,
                wait_ms=self._config.replica_wait_ms,
                bytes_max=self._config.replica_bytes_max,
            )
            self._tasks.append(self._spawn(follower.run()))
        return follower

    def _count_change(self, before: PartitionState, after: PartitionState) -> None:
        """Who goes because the partition moves is not missed."""
        left = set(before.in_sync) - set(after.in_sync)
        self._shrunk_count += not left.isdisjoint(after.replicas)
        self._expanded_count += not set(after.in_sync) <= set(before.in_sync)

    def _forget_positions(self, follower: int, now_ms: int) -> None:
        for leadership in self._leaderships.values():
            leadership.replicas.began_anew(follower, now_ms)

    def _tell(self, place: Place, *, is_leading: bool) -> None:
        for watcher in self._watchers:
            watcher(*place, is_leading)
