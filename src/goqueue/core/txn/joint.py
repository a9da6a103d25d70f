"""Joints: many producers, one verdict (docs/adr/0027-joint-transactions.md).

A joint writes batch after batch. Whoever has a part of a batch to write enrols in it and is from then on an ordinary
transactional producer, but for its end: that is the joint's, who names the winners of a batch. One event batch commits
them, aborts every other member up to that batch and remembers the batch, so that it is never committed again, by whomever.
All members of a joint are in the shard of the joint, because its id in braces begins theirs.

A member lives as long as its part: it is forgotten when its markers are written, or when it has written nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from msgspec.structs import replace

from goqueue.core.deadlines import Deadlines
from goqueue.core.txn import transitions
from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import (
    PREPARED,
    Event,
    JointBatch,
    JointForgotten,
    JointSaved,
    ProducerEpoch,
    ProducerSpared,
    SpareTaken,
    TransactionSaved,
    TxnState,
)
from goqueue.core.txn.members import OPEN, OpenMembers
from goqueue.core.txn.outcome import Decision, MarkerWork, ProducerIdNeeded
from goqueue.core.txn.refusals import (
    BATCH_ID_MAX,
    check_enrolment,
    check_joint,
    concurrent,
    lost_winner,
    not_alone,
    too_many_ids,
)
from goqueue.core.txn.spares import Spares
from goqueue.model.errors import ConcurrentTransactions, LimitExceeded


@dataclass(frozen=True, slots=True)
class Enrolled:
    """Who the member is."""

    transactional_id: str
    producer: ProducerEpoch


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The batch is written and counts: there is nothing left to do for it."""


class Winner(NamedTuple):
    """A member whose part is complete, as it was enrolled."""

    transactional_id: str
    producer: ProducerEpoch


def joint_key(joint_id: str) -> str:
    """What every member's id begins with, and what finds the coordinator of them all."""
    return f"{{{joint_id}}}"


def member_id(joint_id: str, batch_id: int, member: str) -> str:
    return f"{joint_key(joint_id)}/{batch_id}/{member}"


class Joints:
    """`saved` is the shard's, which is only read here."""

    def __init__(self, config: TxnConfig, saved: Mapping[str, TransactionSaved]) -> None:
        self._config = config
        self._saved = saved
        self._committed: dict[str, JointSaved] = {}
        self._open = OpenMembers(config.member_count_max)
        self._expirations = Deadlines[str]()
        self._spares = Spares()

    @property
    def open_count(self) -> int:
        """Joints that have open members."""
        return len(self._open.joint_ids())

    @property
    def known_count(self) -> int:
        """Joints whose last batch is remembered."""
        return len(self._committed)

    def enrol(
        self,
        joint_id: str,
        batch_id: int,
        member: str,
        timeout_ms: int,
        *,
        fresh_producer_id: int | None,
        now_ms: int,
    ) -> Decision[Enrolled | AlreadyCommitted | ConcurrentTransactions]:
        """Whoever has the same name in this batch is fenced. Batches before this one have been given up by whoever
        enrols here: what is open of them is aborted."""
        check_enrolment(joint_id, batch_id, member, timeout_ms, self._config)
        if self._is_committed(joint_id, batch_id):
            return Decision(AlreadyCommitted())
        id, joint = member_id(joint_id, batch_id, member), JointBatch(joint_id, batch_id)
        saved = self._saved.get(id)
        if saved is not None and saved.state in PREPARED:
            raise concurrent(saved)
        given_up = self._members(joint_id, batch_id_end=batch_id)
        if saved is not None and saved.state is TxnState.ONGOING:
            events, markers = self._judged([saved, *given_up], now_ms)
            after = transitions.judged(saved, is_commit=False, now_ms=now_ms)
            return Decision(concurrent(after), events, markers)
        taken, after = self._new_member(saved, id, joint, timeout_ms, fresh_producer_id, now_ms)
        self._check_room(joint, after, given_up)
        events, markers = self._judged(given_up, now_ms)
        return Decision(Enrolled(id, after.producer), [*taken, after, *events], markers)

    def commit(
        self, joint_id: str, batch_id: int, winners: Collection[Winner], now_ms: int
    ) -> Decision[bool]:
        """Whether the batch was committed before; then nothing changes. Raises `TransactionAbortable` where a winner is
        not what it was, and nothing changes either."""
        check_joint(joint_id, batch_id)
        if self._is_committed(joint_id, batch_id):
            return Decision(True)
        joint = JointBatch(joint_id, batch_id)
        for winner in winners:
            self._check_winner(winner, joint)
        self._check_joint_count(joint_id)
        members = self._members(joint_id, batch_id_end=batch_id + 1)
        events, markers = self._judged(members, now_ms, {winner.transactional_id for winner in winners})
        return Decision(False, [JointSaved(joint_id, batch_id, now_ms), *events], markers)

    def abort(self, joint_id: str, batch_id: int, now_ms: int) -> Decision[bool]:
        """Whether the batch was committed before: then it is too late. It may be written again."""
        check_joint(joint_id, batch_id)
        if self._is_committed(joint_id, batch_id):
            return Decision(True)
        members = self._members(joint_id, batch_id_start=batch_id, batch_id_end=batch_id + 1)
        return Decision(False, *self._judged(members, now_ms))

    def end_alone(self, saved: TransactionSaved, *, is_commit: bool, now_ms: int) -> Decision[ProducerEpoch]:
        """A member may give up its own part. It is told no new epoch: it has no future."""
        if is_commit:
            raise not_alone(saved)
        return Decision(saved.producer, *self._judged([saved], now_ms))

    def forgotten(self, members: Iterable[TransactionSaved]) -> list[Event]:
        """Whose part is over."""
        return self._spares.forgotten(members)

    def expired(self, now_ms: int, count_max: int) -> list[Event]:
        return [JointForgotten(joint_id) for joint_id in self._expirations.due(now_ms, count_max)]

    def next_ms(self) -> int | None:
        return self._expirations.next_ms()

    def check_growth(self, before: TransactionSaved, after: TransactionSaved) -> None:
        """Before more partitions take part."""
        if after.joint is not None:
            self._open.check(after.joint, after, [before])

    def _is_committed(self, joint_id: str, batch_id: int) -> bool:
        committed = self._committed.get(joint_id)
        return committed is not None and batch_id <= committed.last_batch_id

    def _members(
        self, joint_id: str, *, batch_id_start: int = 0, batch_id_end: int
    ) -> list[TransactionSaved]:
        """The open ones of these batches."""
        ids = self._open.ids(joint_id, batch_id_start, batch_id_end)
        return [self._saved[id] for id in ids]

    def _judged(
        self, members: Iterable[TransactionSaved], now_ms: int, winner_ids: Collection[str] = ()
    ) -> tuple[list[Event], list[MarkerWork]]:
        """The verdict about each. Who has written nothing needs no marker."""
        decided: list[TransactionSaved] = []
        empty: list[TransactionSaved] = []
        for saved in members:
            if saved.state is TxnState.EMPTY:
                empty.append(saved)
            else:
                is_commit = saved.transactional_id in winner_ids
                decided.append(transitions.judged(saved, is_commit=is_commit, now_ms=now_ms))
        return [*decided, *self.forgotten(empty)], [transitions.markers_of(saved) for saved in decided]

    def _new_member(
        self,
        saved: TransactionSaved | None,
        id: str,
        joint: JointBatch,
        timeout_ms: int,
        fresh_producer_id: int | None,
        now_ms: int,
    ) -> tuple[list[Event], TransactionSaved]:
        """What to write besides the member, and the member."""
        if saved is not None:
            after = transitions.taken_over(saved, fresh_producer_id, timeout_ms, is_same=False, now_ms=now_ms)
            return [], replace(after, joint=joint)
        spare = self._spares.first()
        if spare is not None:
            return [SpareTaken(spare.producer_id)], transitions.enrolled(id, spare, joint, timeout_ms, now_ms)
        if fresh_producer_id is None:
            raise ProducerIdNeeded
        producer = ProducerEpoch(fresh_producer_id, 0)
        return [], transitions.enrolled(id, producer, joint, timeout_ms, now_ms)

    def _check_winner(self, winner: Winner, joint: JointBatch) -> None:
        id, claim = winner
        saved = self._saved.get(id)
        if saved is None:
            raise lost_winner(
                id, joint, "is unknown; it was never enrolled, or has timed out or been aborted"
            )
        if saved.joint != joint:
            raise lost_winner(id, joint, "is not enrolled in it")
        if saved.state not in OPEN:
            raise lost_winner(id, joint, f"has ended ({saved.state.value})")
        if saved.producer != claim:
            raise lost_winner(
                id,
                joint,
                f"is epoch {saved.epoch} of producer {saved.producer_id} by now, not epoch {claim.epoch} "
                f"of producer {claim.producer_id}",
            )

    def _check_room(
        self, joint: JointBatch, after: TransactionSaved, given_up: list[TransactionSaved]
    ) -> None:
        before = self._saved.get(after.transactional_id)
        if before is None and len(self._saved) >= self._config.id_count_max:
            raise too_many_ids(len(self._saved))
        self._check_joint_count(joint.joint_id)
        self._open.check(joint, after, given_up if before is None else [*given_up, before])

    def _check_joint_count(self, joint_id: str) -> None:
        """A joint counts from its first member on, so that the commit of one that was let in is not refused."""
        if joint_id in self._committed or joint_id in self._open.joint_ids():
            return
        if self.known_count + self.open_count < self._config.joint_count_max:
            return  # even if none is both
        count = self.known_count + sum(id not in self._committed for id in self._open.joint_ids())
        if count >= self._config.joint_count_max:
            raise LimitExceeded(f"{count} joints share this partition already, which is the limit")

    def apply(self, event: JointSaved | JointForgotten | ProducerSpared | SpareTaken) -> None:
        match event:
            case JointSaved():
                self._committed[event.joint_id] = event
                self._expirations.set(event.joint_id, event.updated_ms + self._rest_ms(event.last_batch_id))
            case JointForgotten():
                self._committed.pop(event.joint_id, None)
                self._expirations.cancel(event.joint_id)
            case ProducerSpared() | SpareTaken():
                self._spares.apply(event)
            case _:
                assert_never(event)

    def _rest_ms(self, last_batch_id: int) -> int:
        """After the last batch there can be, there is nothing to come: it is remembered for those who are late with it."""
        rest_ms = self._config.joint_expiration_ms
        return min(rest_ms, self._config.member_timeout_ms_max) if last_batch_id == BATCH_ID_MAX else rest_ms

    def follow(self, before: TransactionSaved | None, after: TransactionSaved | None) -> None:
        """A transactional id of the shard has changed."""
        self._open.follow(before, after)
