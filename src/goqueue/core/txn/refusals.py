"""What a producer is told when it may not do what it wants."""

from __future__ import annotations

from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import ProducerEpoch, TransactionSaved
from goqueue.model.errors import (
    ConcurrentTransactions,
    InvalidGroupId,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    TransactionAbortable,
    TransactionalIdNotFound,
    TransactionalProducerFenced,
)

ID_LENGTH_MAX = 1_024


def check_init(transactional_id: str, timeout_ms: int, config: TxnConfig) -> None:
    """What can be wrong whatever the state."""
    check_transactional_id(transactional_id)
    if not 1 <= timeout_ms <= config.timeout_ms_max:
        raise InvalidTransactionTimeout(
            f"a transaction may take 1 to {config.timeout_ms_max} ms, not {timeout_ms}",
            timeout_ms=timeout_ms,
            timeout_ms_max=config.timeout_ms_max,
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
