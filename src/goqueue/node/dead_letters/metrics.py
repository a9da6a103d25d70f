"""What is counted of records on their way from one topic to another."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class MoveMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.moved = Counter(
            "goqueue_consumer_moved_total",
            "Messages that have arrived in the dead letters, or back from there",
            ["cause"],
            registry=registry,
        )
        self.retries = Counter(
            "goqueue_consumer_move_retries_total",
            "Attempts to move messages that failed and are made again",
            registry=registry,
        )
