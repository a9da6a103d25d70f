"""Who writes: an id that a broker gives, so that it recognises what comes twice."""

from __future__ import annotations

from typing import NamedTuple

from goqueue.client.kafka.brokers import TRANSACTION, Brokers
from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.errors import check, unfit

_TIMEOUT_MS_MAX = 2**31 - 1  # of Kafka's layouts; brokers allow less


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


def init_producer(brokers: Brokers, transactional_id: str | None, *, timeout_ms: int) -> ProducerIdentity:
    """A producer id; with a transactional id, whoever had it before is fenced and what it left open is aborted."""

    check_timeout(timeout_ms)

    def attempt() -> ProducerIdentity:
        fields = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        if transactional_id is None:
            answer = brokers.call_any("init_producer_id", **fields)
        else:
            answer = brokers.call_coordinator(TRANSACTION, transactional_id, "init_producer_id", **fields)
        check(answer.error_code, f"a producer id for {transactional_id or 'an idempotent producer'}")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return brokers.retrying(attempt)


def check_timeout(timeout_ms: int) -> None:
    """Of a transaction: whether a broker can be asked for it."""
    if not 1 <= timeout_ms <= _TIMEOUT_MS_MAX:
        raise unfit(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"a transaction may take 1 to {_TIMEOUT_MS_MAX} ms, not {timeout_ms}",
        )
