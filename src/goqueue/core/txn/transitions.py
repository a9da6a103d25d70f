"""The steps that a transactional id can take, each from one saved state to the next.

A producer owns its transactional id as long as its epoch is the newest. Whoever takes the id over, and since KIP-890
also every end of a transaction, raises the epoch, so that nothing said under an older one counts any more. Clients
are given epochs up to `EPOCH_MAX`; the one above it is kept for fencing the last of them, then a new producer id begins
at zero.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from goqueue.core.txn.events import (
    PREPARED,
    JointBatch,
    ProducerEpoch,
    TopicPartition,
    TransactionSaved,
    TxnState,
)
from goqueue.core.txn.outcome import MarkerWork, ProducerIdNeeded
from goqueue.model.errors import invariant

EPOCH_MAX = 2**15 - 2


def is_exhausted(saved: TransactionSaved) -> bool:
    return saved.epoch >= EPOCH_MAX


def first(transactional_id: str, producer_id: int | None, timeout_ms: int, now_ms: int) -> TransactionSaved:
    """A transactional id that nobody has used."""
    return TransactionSaved(
        transactional_id, _needed(producer_id), 0, timeout_ms, TxnState.EMPTY, updated_ms=now_ms
    )


def enrolled(
    transactional_id: str, producer: ProducerEpoch, joint: JointBatch, timeout_ms: int, now_ms: int
) -> TransactionSaved:
    """A member of a joint that nobody has been."""
    return TransactionSaved(
        transactional_id, *producer, timeout_ms, TxnState.EMPTY, updated_ms=now_ms, joint=joint
    )


def taken_over(
    saved: TransactionSaved, producer_id: int | None, timeout_ms: int, *, is_same: bool, now_ms: int
) -> TransactionSaved:
    """The next epoch, for a new producer or for the same one, who may have to ask again if the answer gets lost."""
    fresh = replace(
        _rested(saved, timeout_ms, now_ms),
        epoch=saved.epoch + 1,
        last_epoch=saved.epoch if is_same else None,
    )
    if not is_exhausted(saved):
        return fresh
    return replace(fresh, producer_id=_needed(producer_id), epoch=0, previous_producer_id=saved.producer_id)


def asked_again(saved: TransactionSaved, timeout_ms: int, now_ms: int) -> TransactionSaved:
    """The producer did not hear its epoch: it keeps it."""
    return _rested(saved, timeout_ms, now_ms)


def joined(
    saved: TransactionSaved, partitions: Iterable[TopicPartition], groups: Iterable[str], now_ms: int
) -> TransactionSaved:
    """More participants; the first of them begin the transaction."""
    is_open = saved.state is TxnState.ONGOING
    indexes = {topic: set(known) for topic, known in saved.partitions.items()} if is_open else {}
    for topic, partition in partitions:
        indexes.setdefault(topic, set()).add(partition)
    known_groups = saved.groups if is_open else ()
    return replace(
        saved,
        state=TxnState.ONGOING,
        serial=saved.serial if is_open else saved.serial + 1,
        partitions={topic: tuple(sorted(found)) for topic, found in indexes.items()},
        groups=tuple(dict.fromkeys((*known_groups, *groups))),
        started_ms=saved.started_ms if is_open else now_ms,
        is_epoch_bumped=False,
        updated_ms=now_ms,
    )


def ended(
    saved: TransactionSaved, producer_id: int | None, *, is_commit: bool, bumps_epoch: bool, now_ms: int
) -> TransactionSaved:
    """The verdict of the producer. One without participants is complete at once: there is nobody to tell."""
    decided = replace(
        saved, state=TxnState.PREPARE_COMMIT if is_commit else TxnState.PREPARE_ABORT, updated_ms=now_ms
    )
    if bumps_epoch:
        decided = replace(
            decided,
            epoch=saved.epoch + 1,
            last_epoch=saved.epoch,
            is_epoch_bumped=True,
            next_producer_id=_needed(producer_id) if is_exhausted(saved) else None,
        )
    if saved.state is TxnState.ONGOING:
        return decided
    return completed(replace(decided, serial=saved.serial + 1, started_ms=now_ms), now_ms)


def fenced(saved: TransactionSaved, *, may_go_on: bool, now_ms: int) -> TransactionSaved:
    """An open transaction is aborted over its producer's head, who from now on is refused. If it may go on, it is told
    its next epoch when it aborts or asks for one; not at the last epoch, since the one above it is nobody's."""
    invariant(
        saved.epoch <= EPOCH_MAX, f"epoch {saved.epoch} of {saved.transactional_id!r} is above the last"
    )
    return replace(
        saved,
        state=TxnState.PREPARE_ABORT,
        epoch=saved.epoch + 1,
        last_epoch=saved.epoch if may_go_on and not is_exhausted(saved) else None,
        is_epoch_bumped=True,
        updated_ms=now_ms,
    )


def judged(saved: TransactionSaved, *, is_commit: bool, now_ms: int) -> TransactionSaved:
    """The verdict of a joint about a member: whichever it is, the producer is fenced, for its work is done."""
    after = fenced(saved, may_go_on=False, now_ms=now_ms)
    return replace(after, state=TxnState.PREPARE_COMMIT) if is_commit else after


def spared(saved: TransactionSaved) -> ProducerEpoch | None:
    """What the next member may have of one that is forgotten: an epoch that this one was never told."""
    is_raised = saved.state in PREPARED and saved.is_epoch_bumped
    epoch = saved.epoch if is_raised else saved.epoch + 1
    return ProducerEpoch(saved.producer_id, epoch) if epoch <= EPOCH_MAX else None


def completed(saved: TransactionSaved, now_ms: int) -> TransactionSaved:
    """Everybody has heard the verdict."""
    is_commit = saved.state is TxnState.PREPARE_COMMIT
    done = replace(
        saved,
        state=TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT,
        partitions={},
        groups=(),
        updated_ms=now_ms,
    )
    if saved.next_producer_id is None:
        return done
    return replace(
        done,
        producer_id=saved.next_producer_id,
        epoch=0,
        previous_producer_id=saved.producer_id,
        next_producer_id=None,
    )


def producer_after(saved: TransactionSaved) -> ProducerEpoch:
    """Who the producer is in its next transaction."""
    if saved.next_producer_id is not None:
        return ProducerEpoch(saved.next_producer_id, 0)
    return saved.producer


def markers_of(saved: TransactionSaved) -> MarkerWork:
    """Of a transaction that is decided."""
    return MarkerWork(
        saved.transactional_id,
        saved.serial,
        saved.producer,
        is_epoch_bumped=saved.is_epoch_bumped,
        is_commit=saved.state is TxnState.PREPARE_COMMIT,
        partitions=tuple(saved.topic_partitions()),
        groups=saved.groups,
    )


def _rested(saved: TransactionSaved, timeout_ms: int, now_ms: int) -> TransactionSaved:
    return replace(
        saved,
        timeout_ms=timeout_ms,
        state=TxnState.EMPTY,
        partitions={},
        groups=(),
        started_ms=None,
        updated_ms=now_ms,
        joint=None,  # an ordinary producer has it now
    )


def _needed(producer_id: int | None) -> int:
    if producer_id is None:
        raise ProducerIdNeeded
    return producer_id
