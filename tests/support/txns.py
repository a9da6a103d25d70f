"""A transaction coordinator as the node runs it, without the node: decide, write, apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import ProducerEpoch, TopicPartition, TransactionSaved, TxnCodec, TxnState
from goqueue.core.txn.joint import AlreadyCommitted, Enrolled, Winner
from goqueue.core.txn.outcome import Decision, MarkerWork, ProducerIdNeeded
from goqueue.core.txn.shard import TxnShard
from goqueue.model.errors import ConcurrentTransactions

R = TypeVar("R")
ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 3)


class Coordinator:
    """`log` has every record ever written, `pending` the markers that nobody has written yet."""

    def __init__(self, config: TxnConfig | None = None) -> None:
        self.config = config or TxnConfig()
        self.shard = TxnShard(self.config)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.pending: list[MarkerWork] = []
        self.now_ms = 1_000
        self.ids_given = 0
        self._codec = TxnCodec()

    def decide(self, decide: Callable[[int | None], Decision[R]]) -> R:
        try:
            decision = decide(None)
        except ProducerIdNeeded:
            self.ids_given += 1
            decision = decide(self.ids_given)
        for event in decision.events:
            self.log.append(self._codec.encode(event))
            self.shard.apply(event)
        self.pending += decision.markers
        return decision.reply

    def init(
        self, id: str = "app", *, timeout_ms: int = 60_000, given: ProducerEpoch | None = None
    ) -> ProducerEpoch:
        reply = self.decide(
            lambda fresh: self.shard.init_producer(
                id, timeout_ms, given, fresh_producer_id=fresh, now_ms=self.now_ms
            )
        )
        if isinstance(reply, ConcurrentTransactions):
            raise reply
        return reply

    def add(self, who: ProducerEpoch, *partitions: TopicPartition, id: str = "app") -> None:
        self.decide(lambda _: self.shard.add_partitions(id, *who, partitions, self.now_ms))

    def add_group(self, who: ProducerEpoch, group_id: str, *, id: str = "app") -> None:
        self.decide(lambda _: self.shard.add_offsets(id, *who, group_id, self.now_ms))

    def end(
        self, who: ProducerEpoch, *, is_commit: bool = True, bumps_epoch: bool = True, id: str = "app"
    ) -> ProducerEpoch:
        return self.decide(
            lambda fresh: self.shard.end(
                id,
                *who,
                is_commit=is_commit,
                bumps_epoch=bumps_epoch,
                fresh_producer_id=fresh,
                now_ms=self.now_ms,
            )
        )

    def enrol(
        self, member: str = "m", *, joint: str = "q", batch: int = 0, timeout_ms: int = 60_000
    ) -> Enrolled | AlreadyCommitted:
        reply = self.decide(
            lambda fresh: self.shard.joints.enrol(
                joint, batch, member, timeout_ms, fresh_producer_id=fresh, now_ms=self.now_ms
            )
        )
        if isinstance(reply, ConcurrentTransactions):
            raise reply
        return reply

    def enrolled(self, member: str = "m", *parts: TopicPartition, joint: str = "q", batch: int = 0) -> Winner:
        """A member that has written to these partitions."""
        reply = self.enrol(member, joint=joint, batch=batch)
        assert isinstance(reply, Enrolled)
        if parts:
            self.add(reply.producer, *parts, id=reply.transactional_id)
        return Winner(reply.transactional_id, reply.producer)

    def commit_joint(self, *winners: Winner, joint: str = "q", batch: int = 0) -> bool:
        return self.decide(lambda _: self.shard.joints.commit(joint, batch, winners, self.now_ms))

    def abort_joint(self, *, joint: str = "q", batch: int = 0) -> bool:
        return self.decide(lambda _: self.shard.joints.abort(joint, batch, self.now_ms))

    def verdicts(self) -> dict[str, bool]:
        """Of what is decided and not complete, whether it is committed."""
        return {work.transactional_id: work.is_commit for work in self.pending}

    def complete_all(self) -> None:
        while self.pending:
            self.written(self.pending.pop())

    def complete(self, *, id: str = "app") -> MarkerWork:
        """Write the markers of the id's transaction."""
        (work,) = [work for work in self.pending if work.transactional_id == id]
        self.pending.remove(work)
        self.written(work)
        return work

    def written(self, work: MarkerWork) -> None:
        self.decide(lambda _: Decision(None, self.shard.markers_written(work, self.now_ms)))

    def tick(self, after_ms: int = 0) -> None:
        self.now_ms += after_ms
        self.decide(lambda _: self.shard.tick(self.now_ms))

    def saved(self, id: str = "app") -> TransactionSaved:
        return self.shard.describe(id)

    def state(self, id: str = "app") -> TxnState:
        return self.saved(id).state

    def crash(self) -> None:
        """Start again from the log, of which compaction has left the newest record of each key."""
        self.shard = self._replayed()
        self.pending = self.shard.resume()

    def check_replay(self) -> TxnShard:
        """What a crash would leave is what there is; gives it as it would be."""
        again = self._replayed()
        assert again.transactions() == self.shard.transactions()
        assert again.next_tick_ms() == self.shard.next_tick_ms()
        assert again.resume() == self.shard.resume()
        return again

    def _replayed(self) -> TxnShard:
        shard = TxnShard(self.config)
        for key, value in dict(self.log).items():
            shard.apply(self._codec.decode(key, value))
        return shard

    def begun(self, *partitions: TopicPartition, id: str = "app") -> ProducerEpoch:
        """A producer with an open transaction."""
        who = self.init(id)
        self.add(who, *(partitions or (ORDERS,)), id=id)
        return who

    def at_epoch(self, epoch: int, id: str = "app") -> ProducerEpoch:
        """As if the producer had come this far."""
        saved = self.saved(id)
        self.shard.apply(
            TransactionSaved(
                id,
                saved.producer_id,
                epoch,
                saved.timeout_ms,
                saved.state,
                self.now_ms,
                serial=saved.serial,
                last_epoch=epoch - 1,
                partitions=saved.partitions,
                groups=saved.groups,
                started_ms=saved.started_ms,
            )
        )
        return self.saved(id).producer
