"""What the group coordinator counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from goqueue.core.group.events import Event, GroupSaved, OffsetCommitted


class GroupMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.rebalances = Counter(
            "goqueue_consumer_rebalances",
            "Generations of classic groups whose assignment was completed.",
            registry=registry,
        )
        self.commits = Counter(
            "goqueue_consumer_committed_offsets", "Offsets committed, per partition.", registry=registry
        )
        self.parked = Gauge(
            "goqueue_consumer_parked_calls", "Calls of members that wait for a rebalance.", registry=registry
        )
        self.reloads = Counter(
            "goqueue_consumer_shard_reloads",
            "Times a shard of groups was read from its log again because a write had failed.",
            registry=registry,
        )

    def count(self, event: Event) -> None:
        match event:
            case GroupSaved() if event.members:
                self.rebalances.inc()
            case OffsetCommitted():
                self.commits.inc()
