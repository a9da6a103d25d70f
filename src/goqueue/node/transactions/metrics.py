"""What the transaction coordinator counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class TxnMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.ended = Counter(
            "goqueue_broker_transactions",
            "Transactions completed, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.timeouts = Counter(
            "goqueue_broker_transaction_timeouts",
            "Transactions aborted because they took too long.",
            registry=registry,
        )
        self.retries = Counter(
            "goqueue_broker_transaction_retries",
            "Attempts to complete a transaction that failed and are made again.",
            registry=registry,
        )
