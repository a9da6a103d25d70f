"""What a producer is told when it may not do what it wants."""

from __future__ import annotations

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import JointBatch, ProducerEpoch, TransactionSaved
from goqueue.model.errors import (
    ConcurrentTransactions,
    InvalidGroupId,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    LimitExceeded,
    TransactionAbortable,
    TransactionalIdNotFound,
    TransactionalProducerFenced,
)

ID_LENGTH_MAX = 1_024
JOINT_ID_LENGTH_MAX = 200
MEMBER_LENGTH_MAX = 200
BATCH_ID_MAX = 2**63 - 1


def check_init(transactional_id: str, timeout_ms: int, config: TxnConfig) -> None:
    """What can be wrong whatever the state."""
    check_transactional_id(transactional_id)
    _check_timeout(timeout_ms, config.timeout_ms_max)


def check_enrolment(joint_id: str, batch_id: int, member: str, timeout_ms: int, config: TxnConfig) -> None:
    check_joint(joint_id, batch_id)
    if not 1 <= len(member) <= MEMBER_LENGTH_MAX or not member.isprintable():
        raise InvalidRequest(
            f"a member's name has 1 to {MEMBER_LENGTH_MAX} printable characters, "
            f"{member[:MEMBER_LENGTH_MAX]!r} has not"
        )
    _check_timeout(timeout_ms, config.member_timeout_ms_max)


def check_joint(joint_id: str, batch_id: int) -> None:
    is_sound = 1 <= len(joint_id) <= JOINT_ID_LENGTH_MAX and joint_id.isprintable()
    if not is_sound or "{" in joint_id or "}" in joint_id:
        raise InvalidRequest(
            f"a joint id has 1 to {JOINT_ID_LENGTH_MAX} printable characters and no braces, "
            f"{joint_id[:JOINT_ID_LENGTH_MAX]!r} is none"
        )
    if not 0 <= batch_id <= BATCH_ID_MAX:
        raise InvalidRequest(f"a batch id is between 0 and {BATCH_ID_MAX}, {batch_id} is not")


def _check_timeout(timeout_ms: int, timeout_ms_max: int) -> None:
    if not 1 <= timeout_ms <= timeout_ms_max:
        raise InvalidTransactionTimeout(
            f"a transaction may take 1 to {timeout_ms_max} ms, not {timeout_ms}",
            timeout_ms=timeout_ms,
            timeout_ms_max=timeout_ms_max,
        )


def check_transactional_id(transactional_id: str) -> None:
    if not 1 <= len(transactional_id) <= ID_LENGTH_MAX or not transactional_id.isprintable():
        raise InvalidRequest(
            f"a transactional id has 1 to {ID_LENGTH_MAX} printable characters, "
            f"{transactional_id[:ID_LENGTH_MAX]!r} has not"
        )


def check_group_id(group_id: str) -> None:
    if not 1 <= len(group_id) <= ID_LENGTH_MAX:
        raise InvalidGroupId(f"a group id has 1 to {ID_LENGTH_MAX} characters, not {len(group_id)}")


def unknown(transactional_id: str) -> TransactionalIdNotFound:
    return TransactionalIdNotFound(
        f"there is no transactional id {transactional_id!r}", transactional_id=transactional_id
    )


def unmapped(transactional_id: str, producer_id: int | None = None) -> InvalidProducerIdMapping:
    if producer_id is None:
        sentence = f"transactional id {transactional_id!r} has no producer; init one first"
    else:
        sentence = f"producer {producer_id} is not the one of transactional id {transactional_id!r}"
    return InvalidProducerIdMapping(sentence, transactional_id=transactional_id, producer_id=producer_id)


def too_many_ids(count: int) -> LimitExceeded:
    return LimitExceeded(f"{count} transactional ids share this partition already, which is the limit")


def fenced(saved: TransactionSaved, claim: ProducerEpoch) -> TransactionalProducerFenced:
    return TransactionalProducerFenced(
        f"transactional id {saved.transactional_id!r} has moved on; epoch {claim.epoch} of producer "
        f"{claim.producer_id} is fenced",
        transactional_id=saved.transactional_id,
        producer_id=claim.producer_id,
        epoch=claim.epoch,
    )


def concurrent(saved: TransactionSaved) -> ConcurrentTransactions:
    return ConcurrentTransactions(
        f"the last transaction of {saved.transactional_id!r} is being completed ({saved.state.value}); try again",
        transactional_id=saved.transactional_id,
        state=saved.state.value,
    )


def invalid_end(saved: TransactionSaved, is_commit: bool) -> InvalidTransactionState:
    verb = "committed" if is_commit else "aborted"
    return InvalidTransactionState(
        f"{saved.transactional_id!r} has no transaction that could be {verb}: it is {saved.state.value}",
        transactional_id=saved.transactional_id,
        state=saved.state.value,
    )


def not_in(saved: TransactionSaved, what: str) -> TransactionAbortable:
    return TransactionAbortable(
        f"{what} is not part of the transaction of {saved.transactional_id!r} ({saved.state.value}); abort it",
        transactional_id=saved.transactional_id,
        state=saved.state.value,
    )


def not_alone(saved: TransactionSaved) -> InvalidTransactionState:
    joint_id = "" if saved.joint is None else saved.joint.joint_id
    return InvalidTransactionState(
        f"{saved.transactional_id!r} is a member of joint {joint_id!r}: it cannot commit alone, its joint does",
        transactional_id=saved.transactional_id,
        state=saved.state.value,
    )


def lost_winner(transactional_id: str, joint: JointBatch, reason: str) -> TransactionAbortable:
    return TransactionAbortable(
        f"batch {joint.batch_id} of joint {joint.joint_id!r} cannot be committed: member "
        f"{transactional_id[:ID_LENGTH_MAX]!r} {reason}; abort the batch and write it again",
        transactional_id=transactional_id,
        joint_id=joint.joint_id,
        batch_id=joint.batch_id,
    )
