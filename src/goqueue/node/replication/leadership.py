"""One partition and its companions, for as long as this node leads them: what followers fetch raises the high watermarks, what
is appended wakes the followers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from goqueue.core.cluster.partitions import PartitionState
from goqueue.core.replica.replicas import Replicas
from goqueue.node.partition import Partition

WhenChanged = Callable[
    [Partition, tuple[int, ...], bool], None
]  # for whom, and whether there is more to fetch


class Leadership:
    def __init__(
        self, me: int, state: PartitionState, *, min_in_sync: int, now_ms: int, when_changed: WhenChanged
    ) -> None:
        self.replicas = Replicas(me, state, min_in_sync=min_in_sync, now_ms=now_ms)
        self.epoch = state.leader_epoch
        self._me = me
        self._when_changed = when_changed
        self._logs: dict[str, Partition] = {}
        self._followers = self._others(state)

    @property
    def has_enough(self) -> bool:
        return self.replicas.has_enough

    @property
    def has_failed(self) -> bool:
        """A log of the partition cannot be written any more."""
        return any(partition.log.failure is not None for partition in self._logs.values())

    def expect(self, partitions: Sequence[Partition]) -> None:
        """The partition and its companions: nobody is in sync who is not so in all of them."""
        self.replicas.expect([partition.topic for partition in partitions])

    def began(self, partition: Partition) -> None:
        log = partition.log
        self._logs[partition.topic] = partition
        self.replicas.add_log(partition.topic, end=log.end, high_watermark=log.high_watermark)
        self.appended(partition)

    def appended(self, partition: Partition) -> None:
        name = partition.topic
        self.replicas.appended(name, partition.log.end)
        self._raise(partition)
        self._when_changed(partition, self._followers, True)

    def fetched(self, follower: int, partition: Partition, offset: int, now_ms: int) -> None:
        """It has everything before `offset` on its disk."""
        self.replicas.fetched(follower, partition.topic, offset, now_ms)
        if follower in self.replicas.state.in_sync:
            self._raise(partition)

    def copied(self, follower: int) -> tuple[int, int, int]:
        """Records that it does not have yet, records there are, and bytes, over all logs."""
        logs = [partition.log for partition in self._logs.values()]
        records = sum(log.end - log.log_start for log in logs)
        left = min(self.replicas.lags().get(follower, records), records)
        return left, records, sum(log.size_bytes for log in logs)

    def refused(self) -> None:
        """What was proposed is not to be."""
        self.replicas.refused()
        for partition in self._logs.values():
            self._raise(partition)

    def update(self, state: PartitionState, *, min_in_sync: int) -> None:
        """The controller has changed the partition; this node goes on leading it."""
        self.replicas.update(state, min_in_sync=min_in_sync)
        self._followers = self._others(state)
        for partition in self._logs.values():
            self._raise(partition)

    def _raise(self, partition: Partition) -> None:
        offset = self.replicas.high_watermark(partition.topic)
        if offset > partition.log.high_watermark:
            partition.raise_watermark(offset)
            self._when_changed(partition, self._followers, False)

    def _others(self, state: PartitionState) -> tuple[int, ...]:
        return tuple(number for number in state.replicas if number != self._me)
