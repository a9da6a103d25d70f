"""Joint transactions: many producers, one decision. A unit of work (a batch of a joint) is committed once, whoever asks again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from goqueue.client.kafka.brokers import TRANSACTION, Brokers
from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.errors import check, unfit
from goqueue.client.kafka.layouts import requests
from goqueue.client.kafka.producer_ids import ProducerIdentity, check_timeout

_E = requests("end_joint")
_BATCH_ID_MAX = 2**63 - 1
Outcome = Literal["committed", "already committed"]


@dataclass(frozen=True, slots=True)
class Enrolled:
    """Write as this producer, in this transaction; give it to `commit_joint` as one of the winners."""

    transactional_id: str
    producer_id: int
    epoch: int

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The batch counts already: there is nothing to write."""


def enrol(
    brokers: Brokers, joint_id: str, batch_id: int, member: str, timeout_ms: int
) -> Enrolled | AlreadyCommitted:
    _check_batch(batch_id)
    check_timeout(timeout_ms)

    def attempt() -> Enrolled | AlreadyCommitted:
        answer = brokers.call_coordinator(
            TRANSACTION,
            _key(joint_id),
            "enrol_in_joint",
            joint_id=joint_id,
            batch_id=batch_id,
            member=member,
            timeout_ms=timeout_ms,
        )
        what = f"enrolling {member!r} in batch {batch_id} of {joint_id!r}"
        check(answer.error_code, what, answer.error_message)
        if answer.is_committed:
            return AlreadyCommitted()
        return Enrolled(answer.transactional_id, answer.producer_id, answer.producer_epoch)

    return brokers.retrying(attempt)


def commit_joint(brokers: Brokers, joint_id: str, batch_id: int, winners: Iterable[Enrolled]) -> Outcome:
    """What the winners wrote counts from now on, all of it; what anybody else wrote in this batch or before never will. A commit whose
    answer was lost is "already committed" the next time."""
    return _end(brokers, joint_id, batch_id, is_commit=True, winners=winners)


def abort_joint(brokers: Brokers, joint_id: str, batch_id: int) -> None:
    """Nothing that was written in the batch counts, unless it was committed before."""
    _end(brokers, joint_id, batch_id, is_commit=False, winners=())


def _end(
    brokers: Brokers, joint_id: str, batch_id: int, *, is_commit: bool, winners: Iterable[Enrolled]
) -> Outcome:
    _check_batch(batch_id)
    named = [
        _E.Winner(
            transactional_id=one.transactional_id, producer_id=one.producer_id, producer_epoch=one.epoch
        )
        for one in winners
    ]

    def attempt() -> Outcome:
        answer = brokers.call_coordinator(
            TRANSACTION,
            _key(joint_id),
            "end_joint",
            joint_id=joint_id,
            batch_id=batch_id,
            is_commit=is_commit,
            winners=named,
        )
        what = f"{'committing' if is_commit else 'aborting'} batch {batch_id} of {joint_id!r}"
        whom = f" ({answer.refused_transactional_id})" if answer.refused_transactional_id else ""
        check(answer.error_code, what + whom, answer.error_message)
        return "already committed" if answer.was_committed else "committed"

    return brokers.retrying(attempt)


def _check_batch(batch_id: int) -> None:
    if not 0 <= batch_id <= _BATCH_ID_MAX:
        raise unfit(
            ErrorCode.INVALID_REQUEST, f"a batch id is between 0 and {_BATCH_ID_MAX}, {batch_id} is not"
        )


def _key(joint_id: str) -> str:
    """Only what is in braces chooses the coordinator, so all members of a joint have the same."""
    return f"{{{joint_id}}}"
