"""The transaction coordinator: all transactional ids of one partition of `__transaction_state`.

Two-phase commit as in Kafka (KIP-98, KIP-360, KIP-447, KIP-890). A transaction's participants, partitions and groups, are
in the log before they are written to. Its end is decided by one event; once that is durable nothing can change the
verdict, and markers tell it to every participant. When all have heard it, the transaction is complete and the next one
may begin.

What a method decides is written by the caller and applied before the shard is asked anything else; deciding changes
nothing. After a restart `resume` gives the markers of everything decided and not complete: writing them again is
harmless, not writing them would leave readers waiting for ever.

Members of joints are transactional ids, too, but their end is their joint's (`joints`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import assert_never

from goqueue.core.deadlines import Deadlines
from goqueue.core.txn import transitions
from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import (
    ENDED,
    PREPARED,
    RESTING,
    Event,
    JointForgotten,
    JointSaved,
    ProducerEpoch,
    ProducerSpared,
    SpareTaken,
    TopicPartition,
    TransactionForgotten,
    TransactionSaved,
    TxnState,
)
from goqueue.core.txn.joint import Joints
from goqueue.core.txn.members import VERDICT_BYTES_MAX, verdict_bytes
from goqueue.core.txn.outcome import Decision, MarkerWork
from goqueue.core.txn.refusals import (
    check_group_id,
    check_init,
    check_transactional_id,
    concurrent,
    fenced,
    invalid_end,
    not_in,
    too_many_ids,
    unknown,
    unmapped,
)
from goqueue.model.errors import ConcurrentTransactions, GoQueueError, LimitExceeded

TICK_COUNT_MAX = 100  # transactions ended by one tick: they are one batch in the log, which has a limit

Refusals = dict[TopicPartition, GoQueueError]


class TxnShard:
    def __init__(self, config: TxnConfig) -> None:
        self._config = config
        self._saved: dict[str, TransactionSaved] = {}
        self._timeouts = Deadlines[str]()  # of open transactions
        self._expirations = Deadlines[str]()  # of ids without one
        self.joints = Joints(config, self._saved)

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        given: ProducerEpoch | None,
        *,
        fresh_producer_id: int | None,
        now_ms: int,
    ) -> Decision[ProducerEpoch | ConcurrentTransactions]:
        """Make the caller the owner of the id: everybody who had it before is fenced. `given` is who the caller is already,
        if it only wants its next epoch."""
        check_init(transactional_id, timeout_ms, self._config)
        saved = self._saved.get(transactional_id)
        if saved is None:
            self._check_id_count()
            saved = transitions.first(transactional_id, fresh_producer_id, timeout_ms, now_ms)
            return Decision(saved.producer, [saved])
        if saved.state in PREPARED:
            raise concurrent(saved)
        if saved.state is TxnState.ONGOING:
            return self._abort_first(saved, given, now_ms)
        if given is None or given == saved.producer:
            after = transitions.taken_over(
                saved, fresh_producer_id, timeout_ms, is_same=given is not None, now_ms=now_ms
            )
        elif _is_one_before(saved, given):
            after = transitions.asked_again(saved, timeout_ms, now_ms)
        else:
            raise fenced(saved, given)
        return Decision(after.producer, [after])

    def _abort_first(
        self, saved: TransactionSaved, given: ProducerEpoch | None, now_ms: int
    ) -> Decision[ProducerEpoch | ConcurrentTransactions]:
        if given is not None and given != saved.producer:
            raise fenced(saved, given)
        after = transitions.fenced(saved, may_go_on=given is not None, now_ms=now_ms)
        return Decision(concurrent(after), [after], [transitions.markers_of(after)])

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        now_ms: int,
    ) -> Decision[None]:
        saved = self._owned(transactional_id, producer_id, epoch)
        return self._join(saved, partitions, (), now_ms)

    def add_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str, now_ms: int
    ) -> Decision[None]:
        """The offsets that the group commits in this transaction count if it does."""
        check_group_id(group_id)
        saved = self._owned(transactional_id, producer_id, epoch)
        return self._join(saved, (), (group_id,), now_ms)

    def _join(
        self,
        saved: TransactionSaved,
        partitions: Collection[TopicPartition],
        groups: Collection[str],
        now_ms: int,
    ) -> Decision[None]:
        after = transitions.joined(saved, partitions, groups, now_ms)
        if (after.partitions, after.groups) == (saved.partitions, saved.groups):
            return Decision(None)
        count = sum(map(len, after.partitions.values())) + len(after.groups)
        if count > self._config.partition_count_max:
            raise LimitExceeded(
                f"a transaction has at most {self._config.partition_count_max} partitions and groups, "
                f"{saved.transactional_id!r} would have {count}",
                transactional_id=saved.transactional_id,
            )
        self.joints.check_growth(saved, after)
        return Decision(None, [after])

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]
    ) -> Refusals:
        """Those that are not part of the producer's open transaction."""
        saved = self._owned(transactional_id, producer_id, epoch)
        return {
            part: not_in(saved, f"{part.topic}/{part.partition}")
            for part in partitions
            if not saved.holds(*part)
        }

    def verify_group(self, transactional_id: str, producer_id: int, epoch: int, group_id: str) -> None:
        """As `verify`, for the group's offsets."""
        saved = self._owned(transactional_id, producer_id, epoch)
        if group_id not in saved.groups:
            raise not_in(saved, f"group {group_id!r}")

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *,
        is_commit: bool,
        bumps_epoch: bool,
        fresh_producer_id: int | None,
        now_ms: int,
    ) -> Decision[ProducerEpoch]:
        """The producer's verdict, and who it is from now on. `bumps_epoch` says that the client speaks KIP-890 and will go
        on with the epoch that comes back; then the same epoch again is the next end, and the one before it a repetition."""
        saved = self._known(transactional_id)
        claim = ProducerEpoch(producer_id, epoch)
        if saved.joint is not None:
            self._check_owner(saved, claim)
            return self.joints.end_alone(saved, is_commit=is_commit, now_ms=now_ms)
        if bumps_epoch:
            is_repeated = saved.state in ENDED and _is_one_before(saved, claim)
        else:
            is_repeated = saved.state is not TxnState.ONGOING and claim == saved.producer
        if is_repeated:
            return self._repeated_end(saved, is_commit)
        self._check_owner(saved, claim)
        if is_commit and saved.state is not TxnState.ONGOING:
            raise invalid_end(saved, is_commit)
        after = transitions.ended(
            saved, fresh_producer_id, is_commit=is_commit, bumps_epoch=bumps_epoch, now_ms=now_ms
        )
        markers = [transitions.markers_of(after)] if after.state in PREPARED else []
        return Decision(transitions.producer_after(after), [after], markers)

    def _repeated_end(self, saved: TransactionSaved, is_commit: bool) -> Decision[ProducerEpoch]:
        prepared, complete = (
            (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)
            if is_commit
            else (TxnState.PREPARE_ABORT, TxnState.COMPLETE_ABORT)
        )
        if saved.state is complete:
            return Decision(saved.producer)
        if saved.state is prepared:
            raise concurrent(saved)
        raise invalid_end(saved, is_commit)

    def markers_written(self, work: MarkerWork, now_ms: int) -> list[Event]:
        """Nothing where that was known before."""
        saved = self._saved.get(work.transactional_id)
        if saved is None or saved.state not in PREPARED or transitions.markers_of(saved) != work:
            return []
        if saved.joint is not None:
            return self.joints.forgotten([saved])
        return [transitions.completed(saved, now_ms)]

    def tick(self, now_ms: int) -> Decision[None]:
        """Abort what takes too long and forget who has been idle too long: the first of them, call again for more."""
        overdue = self._overdue(now_ms)
        aborted = [transitions.fenced(saved, may_go_on=True, now_ms=now_ms) for saved in overdue]
        idle = [self._saved[id] for id in self._expirations.due(now_ms, TICK_COUNT_MAX)]
        return Decision(
            None,
            [
                *aborted,
                *(TransactionForgotten(saved.transactional_id) for saved in idle if saved.joint is None),
                *self.joints.forgotten(saved for saved in idle if saved.joint is not None),
                *self.joints.expired(now_ms, TICK_COUNT_MAX),
            ],
            [transitions.markers_of(saved) for saved in aborted],
        )

    def _overdue(self, now_ms: int) -> list[TransactionSaved]:
        """The first at any rate: one transaction alone always fits."""
        found: list[TransactionSaved] = []
        size = 0
        for id in self._timeouts.due(now_ms, TICK_COUNT_MAX):
            size += verdict_bytes(self._saved[id])
            if found and size > VERDICT_BYTES_MAX:
                break
            found.append(self._saved[id])
        return found

    def next_tick_ms(self) -> int | None:
        deadlines = (self._timeouts.next_ms(), self._expirations.next_ms(), self.joints.next_ms())
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def resume(self) -> list[MarkerWork]:
        """After a replay: what was decided and not completed."""
        prepared = sorted(id for id, saved in self._saved.items() if saved.state in PREPARED)
        return [transitions.markers_of(self._saved[id]) for id in prepared]

    def apply(self, event: Event) -> None:
        match event:
            case TransactionSaved():
                id = event.transactional_id
                self.joints.follow(self._saved.get(id), event)
                self._saved[id] = event
                self._schedule(event)
            case TransactionForgotten():
                id = event.transactional_id
                self.joints.follow(self._saved.pop(id, None), None)
                self._timeouts.cancel(id)
                self._expirations.cancel(id)
            case JointSaved() | JointForgotten() | ProducerSpared() | SpareTaken():
                self.joints.apply(event)
            case _:
                assert_never(event)

    def _schedule(self, saved: TransactionSaved) -> None:
        id = saved.transactional_id
        if saved.state is TxnState.ONGOING and saved.started_ms is not None:
            self._timeouts.set(id, saved.started_ms + saved.timeout_ms)
        else:
            self._timeouts.cancel(id)
        if saved.state in RESTING:
            is_member = saved.joint is not None
            rest_ms = saved.timeout_ms if is_member else self._config.id_expiration_ms
            self._expirations.set(id, saved.updated_ms + rest_ms)
        else:
            self._expirations.cancel(id)

    def describe(self, transactional_id: str) -> TransactionSaved:
        saved = self._saved.get(transactional_id)
        if saved is None:
            raise unknown(transactional_id)
        return saved

    def transactions(self) -> list[TransactionSaved]:
        """By transactional id."""
        return [self._saved[id] for id in sorted(self._saved)]

    def _owned(self, transactional_id: str, producer_id: int, epoch: int) -> TransactionSaved:
        saved = self._known(transactional_id)
        self._check_owner(saved, ProducerEpoch(producer_id, epoch))
        return saved

    def _known(self, transactional_id: str) -> TransactionSaved:
        check_transactional_id(transactional_id)
        saved = self._saved.get(transactional_id)
        if saved is None:
            raise unmapped(transactional_id)
        return saved

    def _check_owner(self, saved: TransactionSaved, claim: ProducerEpoch) -> None:
        """Whether it is the producer of this id, and may go on. While a transaction is being completed nobody may."""
        if saved.state in PREPARED and claim == transitions.producer_after(saved):
            raise concurrent(saved)
        if claim.producer_id != saved.producer_id:
            raise unmapped(saved.transactional_id, claim.producer_id)
        if claim.epoch != saved.epoch or claim.epoch > transitions.EPOCH_MAX:
            raise fenced(saved, claim)

    def _check_id_count(self) -> None:
        if len(self._saved) >= self._config.id_count_max:
            raise too_many_ids(len(self._saved))


def _is_one_before(saved: TransactionSaved, claim: ProducerEpoch) -> bool:
    """Who the producer was before it was given its epoch: it asks again because the answer got lost."""
    if claim.epoch != saved.last_epoch:
        return False
    if claim.producer_id == saved.producer_id:
        return saved.epoch == claim.epoch + 1
    return claim.producer_id == saved.previous_producer_id and saved.epoch == 0
