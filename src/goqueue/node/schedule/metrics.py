"""What is counted about delayed messages."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_LATE_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


class ScheduleMetrics:
    def __init__(self, registry: CollectorRegistry, pending_count: Callable[[], int]) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"goqueue_broker_delayed_{name}", text, registry=registry)

        self.scheduled = counter("scheduled_messages", "Messages that were taken to be delivered later.")
        self.fired = counter("fired_messages", "Delayed messages that were put into their topic.")
        self.cancelled = counter("cancelled_messages", "Delayed messages that were cancelled.")
        self.lost = counter("lost_messages", "Delayed messages that were due and could not be read any more.")
        self.lateness = Histogram(
            "goqueue_broker_delayed_lateness_seconds",
            "From when a message was due until it was in its topic.",
            buckets=_LATE_BUCKETS,
            registry=registry,
        )
        pending = Gauge("goqueue_broker_delayed_pending_messages", "Delayed messages.", registry=registry)
        pending.set_function(pending_count)
