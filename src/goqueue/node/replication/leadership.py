"""One partition and its companions, for as long as this node leads them: what followers fetch raises the high watermarks, what
is appended wakes the followers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from goqueue.core.cluster.partitions import PartitionState
from goqueue.core.replica.replicas import Replicas
from goqueue.node.monotonic import monotonic_ms
from goqueue.node.partition import Partition

# A leader that is alone in sync with damage waits so long for another replica before it tells of it: one that starts takes seconds.
_COMES_BACK_MS: Final = 30_000

WhenChanged = Callable[
    [Partition, tuple[int, ...], bool], None
]  # for whom, and whether there is more to fetch


class Leadership:
    def __init__(
        self,
        me: int,
        state: PartitionState,
        *,
        min_in_sync: int,
        now_ms: int,
        when_changed: WhenChanged,
        when_failed: Callable[[], None],
    ) -> None:
        self.replicas = Replicas(me, state, min_in_sync=min_in_sync, now_ms=now_ms)
        self.epoch = state.leader_epoch
        self._me = me
        self._when_changed = when_changed
        self._when_failed = when_failed
        self._logs: dict[str, Partition] = {}
        self._followers = self._others(state)
        self._damaged_ms: int | None = None  # when damage was found first
        self.is_cut_off = False

    @property
    def has_enough(self) -> bool:
        return self.replicas.has_enough

    def note_contact(self, *, is_silent: bool, heard_ms: Mapping[int, int], oldest_ms: int) -> None:
        """`is_silent`: the controller has not been heard of for so long that it may have chosen another leader. Without it
        the in-sync set stays as it is, so where somebody of that is silent as well, nothing is committed any more."""
        was_cut_off = self.is_cut_off
        self.is_cut_off = is_silent and self.replicas.is_stuck(heard_ms, oldest_ms)
        if self.is_cut_off and not was_cut_off:
            for partition in self._logs.values():
                partition.cut_off()

    @property
    def has_failed(self) -> bool:
        """A log of the partition is damaged, or cannot be written any more, or not until there is space."""
        logs = [partition.log for partition in self._logs.values()]
        return self.is_damaged or any(log.failure is not None or log.is_out_of_space for log in logs)

    @property
    def is_damaged(self) -> bool:
        """Something in it cannot be read."""
        return any(partition.damaged_from is not None for partition in self._logs.values())

    def damaged(self, partition: Partition) -> bool:
        """Whether another replica is to lead, which has what cannot be read here: one that is in sync, or is so in a moment. This
        node fetches it again then."""
        self._when_failed()
        now_ms = monotonic_ms()
        if self._damaged_ms is None:
            self._damaged_ms = now_ms
        may_come = self.replicas.is_replicated and now_ms - self._damaged_ms < _COMES_BACK_MS
        return len(self.replicas.state.in_sync) > 1 or may_come

    def failed(self, partition: Partition) -> None:
        self._when_failed()

    def expect(self, partitions: Sequence[Partition]) -> None:
        """The partition and its companions: nobody is in sync who is not so in all of them."""
        self.replicas.expect([partition.topic for partition in partitions])

    def began(self, partition: Partition) -> None:
        log = partition.log
        self._logs[partition.topic] = partition
        self.replicas.add_log(
            partition.topic,
            end=log.end,
            durable_end=log.durable_end,
            high_watermark=log.high_watermark,
            now_ms=monotonic_ms(),
            start=log.durable_start,
        )
        self.appended(partition)

    def appended(self, partition: Partition) -> None:
        name = partition.topic
        self.replicas.appended(name, partition.log.end)
        if self.replicas.is_replicated:
            partition.commit.request()  # nobody is shown it before, so it is not left to the next flush
        self._raise(partition)
        self._when_changed(partition, self._followers, True)

    def synced(self, partition: Partition) -> None:
        """More of its log is on disk here."""
        if self._logs.get(partition.topic) is partition:
            self.replicas.synced(partition.topic, partition.log.durable_end)
            self._raise(partition)

    def deleted(self, partition: Partition, start: int) -> None:
        """What is before `start` is gone here. The followers hear of it, and `partition.starting` when all who may lead have it so."""
        self.replicas.deleted(partition.topic, start)
        self._when_changed(partition, self._followers, True)
        self._raise(partition)

    def readable_at(self, partition: Partition, offset: int) -> list[int]:
        return self.replicas.readable_at(partition.topic, offset)

    def fetched(
        self, follower: int, partition: Partition, offset: int, now_ms: int, *, log_start: int
    ) -> None:
        """It has everything from `log_start` to `offset` on its disk."""
        self.replicas.fetched(follower, partition.topic, offset, now_ms, log_start=log_start)
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
        """The controller has changed the partition; this node goes on leading it. So the controller is there: whoever writes now
        is not to hear that nobody knows what becomes of it until the next look at who is silent."""
        if state.epoch != self.replicas.state.epoch:
            self.is_cut_off = False
        self.replicas.update(state, min_in_sync=min_in_sync)
        self._followers = self._others(state)
        for partition in self._logs.values():
            self._raise(partition)

    def _raise(self, partition: Partition) -> None:
        offset = self.replicas.high_watermark(partition.topic)
        if offset > partition.log.high_watermark:
            partition.raise_watermark(offset)
            self._when_changed(partition, self._followers, False)
        if partition.starting.is_awaited:
            partition.starting.reached(self.replicas.start(partition.topic))

    def _others(self, state: PartitionState) -> tuple[int, ...]:
        return tuple(number for number in state.replicas if number != self._me)
