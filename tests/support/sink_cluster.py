"""A cluster in memory for the Spark sink: topics, transactions with one verdict, and everything that was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from goqueue.log.batch import decode_batch, read_header
from goqueue.model.record import StoredRecord
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.sink.ports import Batch, Member

NEW_PARTITION_COUNT = 2


@dataclass
class FakeSender:
    cluster: FakeCluster
    member: Member | None
    producer: tuple[int, int] | None
    is_closed: bool = False
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)

    def sequence(self, topic: str, partition: int) -> int:
        return self.sequences.get((topic, partition), 0)

    def send(self, topic: str, partition: int, batch: bytes) -> None:
        header = read_header(batch)
        assert header.is_transactional == (self.member is not None)
        if self.producer is not None:
            assert header.base_sequence == self.sequence(topic, partition)
        self.sequences[topic, partition] = self.sequence(topic, partition) + header.record_count
        if self.cluster.sends_before_failure == 0:
            raise PipelineError("the network is gone")
        if self.cluster.sends_before_failure is not None:
            self.cluster.sends_before_failure -= 1
        assert len(batch) <= int(self.cluster.settings.get(topic, {}).get("max.message.bytes", 1 << 20))
        name = None if self.member is None else self.member.transactional_id
        self.cluster.sent.append((name, topic, partition, batch))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


@dataclass
class FakeCluster:
    partition_counts: dict[str, int] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    sent: list[tuple[str | None, str, int, bytes]] = field(default_factory=list)
    open_members: dict[str, Batch] = field(default_factory=dict)
    committed_members: set[str] = field(default_factory=set)
    committed: dict[str, int] = field(default_factory=dict)  # joints to their last batch
    calls: list[str] = field(default_factory=list)
    sends_before_failure: int | None = None
    producer_count: int = 0
    close_count: int = 0

    def topics(self) -> dict[str, int]:
        return dict(self.partition_counts)

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        return self.settings.get(topic, {})

    def create_topic(self, name: str) -> None:
        self.calls.append(f"create {name}")
        self.partition_counts.setdefault(name, NEW_PARTITION_COUNT)

    def enrol(self, batch: Batch, name: str, *, timeout_ms: int) -> Member | None:
        self.calls.append("enrol")
        if self._is_committed(batch):
            return None
        self.producer_count += 1
        member = Member(f"{{{batch.joint_id}}}/{batch.batch_id}/{name}", self.producer_count, 0)
        self.open_members[member.transactional_id] = batch
        return member

    def sender(self, member: Member | None, acks: str) -> FakeSender:
        if member is not None:
            return FakeSender(self, member, (member.producer_id, member.epoch))
        self.producer_count += 1
        return FakeSender(self, None, (self.producer_count, 0) if acks == "all" else None)

    def commit(self, batch: Batch, winners: Sequence[Member]) -> bool:
        self.calls.append("commit")
        if self._is_committed(batch):
            return False
        for winner in winners:
            if self.open_members.get(winner.transactional_id) != batch:
                raise PipelineError(f"{winner.transactional_id} is not open")
        self.committed[batch.joint_id] = batch.batch_id
        self.committed_members |= {winner.transactional_id for winner in winners}
        self._end(batch)
        return True

    def is_committed(self, batch: Batch) -> bool:
        return self._is_committed(batch)

    def abort(self, batch: Batch) -> None:
        self.calls.append("abort")
        if not self._is_committed(batch):
            self._end(batch)

    def give_up(self, batch: Batch, name: str) -> None:
        self.calls.append("give up")
        del self.open_members[f"{{{batch.joint_id}}}/{batch.batch_id}/{name}"]

    def close(self) -> None:
        self.close_count += 1

    def visible(self, topic: str) -> list[tuple[int, StoredRecord]]:
        """What a committed reader sees: partition and record."""
        return [
            (partition, record)
            for name, where, partition, batch in self.sent
            if where == topic and (name is None or name in self.committed_members)
            for record in decode_batch(batch, read_header(batch))
        ]

    def _is_committed(self, batch: Batch) -> bool:
        return self.committed.get(batch.joint_id, -1) >= batch.batch_id

    def _end(self, batch: Batch) -> None:
        self.open_members = {
            name: other
            for name, other in self.open_members.items()
            if other.joint_id != batch.joint_id or other.batch_id > batch.batch_id
        }
