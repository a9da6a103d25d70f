"""Deliberate mistakes of a cluster that the simulation must find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any  # of states: whatever events they have
from unittest.mock import patch

from msgspec import structs

from goqueue.core.cluster import elections
from goqueue.core.cluster.partitions import PartitionState
from goqueue.core.producer import ProducerTable
from goqueue.core.raft import election, voters
from goqueue.core.raft.election import is_up_to_date
from goqueue.core.raft.messages import AskVote
from goqueue.core.raft.raft import HardState, Raft
from goqueue.log.batch import BatchHeader
from goqueue.log.epochs import LeaderEpochs
from goqueue.log.partition_log import Slice
from goqueue.model.errors import GoQueueError
from goqueue.node import fetch
from goqueue.node.cluster.confirming import Confirming
from goqueue.node.cluster.ports import ReplicaWant
from goqueue.node.fetch import Fetched
from goqueue.node.led_shards import LedShards
from goqueue.node.partition import Partition
from goqueue.node.replication import following, serving
from goqueue.node.replication.following import Follower
from goqueue.node.replication.leadership import Leadership
from goqueue.node.state_log import StateLog


@contextmanager
def vote_twice() -> Iterator[None]:
    """Whoever asks gets the vote, also a second one in the same term."""

    def would_vote(self: Raft, message: AskVote) -> bool:
        if self._is_recovering or not is_up_to_date(self._log, message):
            return False
        return message.term > self._term or not message.is_pre

    with patch.object(Raft, "_would_vote_for", would_vote):
        yield


@contextmanager
def forget_votes() -> Iterator[None]:
    """A vote does not survive a restart."""
    restored_term = Raft._restored_term

    def forgetful(self: Raft, state: HardState) -> tuple[int, str | None]:
        return restored_term(self, state)[0], None

    with patch.object(Raft, "_restored_term", forgetful):
        yield


@contextmanager
def ack_alone() -> Iterator[None]:
    """`acks=all` is answered when the leader itself has the batch on disk."""

    async def settled(self: Partition, end: int, *, since: float | None = None, **_: object) -> None:
        await self.commit.wait(end, since=since)

    with patch.object(Partition, "settled", settled):
        yield


@contextmanager
def skip_truncation() -> Iterator[None]:
    """A leader never says that a follower's log has become another than its own."""
    with patch.object(LeaderEpochs, "diverging", lambda self, last_epoch, offset, log_end: None):
        yield


@contextmanager
def serve_past_high_watermark() -> Iterator[None]:
    """Clients read to the end of the leader's log."""
    read, facts = Partition.read, fetch._facts

    async def read_all(
        self: Partition, offset: int, *, end: int, bytes_max: int, is_own: bool = False
    ) -> Slice:
        return await read(self, offset, end=end, bytes_max=bytes_max, is_own=True)

    def bold(partition: Partition) -> Fetched:
        found = facts(partition)
        found.high_watermark = found.last_stable_offset = partition.log.end
        return found

    with patch.object(Partition, "read", read_all), patch.object(fetch, "_facts", bold):
        yield


@contextmanager
def show_what_followers_have() -> Iterator[None]:
    """A follower takes everything in its log for committed."""
    replicate = Partition.replicate

    def bold(self: Partition, batch: memoryview, header: BatchHeader, *, now_ms: int) -> None:
        replicate(self, batch, header, now_ms=now_ms)
        self.note_watermark(self.log.end)

    with patch.object(Partition, "replicate", bold):
        yield


@contextmanager
def lead_on() -> Iterator[None]:
    """A leader that hears of its successor goes on taking writes, and nobody compares epochs."""
    follow = Partition.follow

    def keep_leading(self: Partition, leader: int | None, epoch: int) -> None:
        leadership, is_led = self.leadership, self.is_led
        follow(self, leader, epoch)
        self.leadership, self.is_led = leadership, is_led

    with (
        patch.object(Partition, "follow", keep_leading),
        patch.object(serving, "check_leader_epoch", lambda partition, epoch: None),
    ):
        yield


@contextmanager
def commit_older_terms() -> Iterator[None]:
    """Whatever a majority has counts as committed, also what an earlier leader wrote."""

    def commit(self: Raft) -> None:
        leadership = self._leadership
        if leadership is not None:
            index = leadership.majority_index()
            if index > self.commit_index:
                self._log.commit(index)
            leadership.readmit()

    with patch.object(Raft, "_commit", commit):
        yield


@contextmanager
def elect_anybody() -> Iterator[None]:
    """Any replica that is alive may lead, whether or not it is in sync."""

    def settle(
        state: PartitionState, states: elections.States, rules: elections.ElectionRules
    ) -> PartitionState:
        if elections.can_serve(states, state.leader) and state.leader in state.replicas:
            return state
        return elections.elect_unclean(state, states)

    with patch.object(elections, "settle", settle):
        yield


@contextmanager
def report_unsynced() -> Iterator[None]:
    """A follower says that it has what it has not on disk yet."""
    want = following._want

    def boast(partition: Partition, bytes_max: int) -> ReplicaWant:
        log = partition.log
        last = log.epochs.at(log.end - 1) if log.end > log.log_start else None
        return structs.replace(
            want(partition, bytes_max), offset=log.end, last_epoch=-1 if last is None else last
        )

    async def take(self: Follower, answer: following._Answer) -> None:
        for one in answer.found:
            place = one.topic, one.partition
            partition = self._partitions.get(place)
            if partition is None:
                continue
            async with self._turn(place):
                try:
                    if self._partitions.get(place) is partition and answer.number > self._put_at[place]:
                        await self._take_one(partition, one)
                        self._dirty[place] = None
                except GoQueueError:
                    self._pause(place)

    with (
        patch.object(following, "_want", boast),
        patch.object(Follower, "_take", take),
        patch.object(Follower, "_hold_back", lambda self, places, now: None),
    ):
        yield


@contextmanager
def decide_alone() -> Iterator[None]:
    """One vote is a majority."""
    with ExitStack() as stack:
        for module in (election, voters):
            stack.enter_context(patch.object(module, "quorum", lambda voters: 1))
        yield


@contextmanager
def tell_from_memory() -> Iterator[None]:
    """A coordinator says how far a group has come without asking whether it still is the coordinator."""

    async def sure(self: Confirming, topic: str, index: int) -> None:
        """It always is."""

    with patch.object(Confirming, "until_sure", sure):
        yield


@contextmanager
def coordinate_on() -> Iterator[None]:
    """A node goes on as the coordinator of what it leads no longer: it answers from memory, and what it decides stays there."""
    note, append, settled, lead = LedShards.note, StateLog.append, StateLog.settled, StateLog.lead

    def is_over(log: StateLog[Any]) -> bool:
        return log._leadership is not None and log._partition.leadership is not log._leadership

    def keep(self: LedShards[Any], topic: str, index: int, is_leading: bool) -> None:
        if is_leading or topic != self._topic:
            note(self, topic, index, is_leading)

    def remember(self: StateLog[Any], events: Sequence[Any]) -> None:
        if not is_over(self):
            append(self, events)

    async def assume(self: StateLog[Any], *, gives_up: bool = False) -> None:
        if not is_over(self):
            await settled(self, gives_up=gives_up)

    async def lead_on(self: StateLog[Any]) -> None:
        if not is_over(self):
            await lead(self)

    with (
        patch.object(LedShards, "note", keep),
        patch.object(StateLog, "append", remember),
        patch.object(StateLog, "settled", assume),
        patch.object(StateLog, "lead", lead_on),
    ):
        yield


@contextmanager
def settle_before_markers_are_committed() -> Iterator[None]:
    """Readers get past a transaction when its leader has the marker, which the next one may not have."""
    settle = ProducerTable.settle

    def settle_all(self: ProducerTable, high_watermark: int) -> None:
        settle(self, 1 << 62)

    with patch.object(ProducerTable, "settle", settle_all):
        yield


@contextmanager
def keep_damage() -> Iterator[None]:
    """A leader that cannot read what it has leads on, though others have it."""
    with (
        patch.object(Leadership, "damaged", lambda self, partition: False),
        patch.object(Leadership, "is_damaged", property(lambda self: False)),
    ):
        yield
