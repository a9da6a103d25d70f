"""What the transaction coordinator counts."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge


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


class JointMetrics:
    """`open_count` and `known_count` are asked for at every scrape."""

    def __init__(
        self, registry: CollectorRegistry, open_count: Callable[[], int], known_count: Callable[[], int]
    ) -> None:
        self.judged = Counter(
            "goqueue_broker_joint_batches",
            "Batches of joints that were judged, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.replays = Counter(
            "goqueue_broker_joint_replays",
            "Requests about a batch of a joint that were told that it was committed before.",
            registry=registry,
        )
        is_open = Gauge("goqueue_broker_open_joints", "Joints that have open members.", registry=registry)
        is_open.set_function(open_count)
        known = Gauge("goqueue_broker_joints", "Joints whose last batch is remembered.", registry=registry)
        known.set_function(known_count)
