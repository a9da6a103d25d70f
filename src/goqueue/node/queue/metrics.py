"""What the queue counts."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter

from goqueue.core.lease.events import Change, Moving, Postponed
from goqueue.model.errors import GoQueueError


class QueueMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"goqueue_consumer_{name}", text, labels, registry=registry)

        self.delivered = counter("queue_delivered_total", "Messages given to members of queue groups")
        self.expired = counter("queue_expired_total", "Leases that were not finished in time")
        self.dead = counter("queue_dead_total", "Messages that went to the dead letters")
        self._finished = counter("queue_finished_total", "What became of leased messages", ["action"])
        self._refused = counter("queue_refused_total", "Receipts that were void", ["code"])

    def count(self, action: str, answers: Sequence[object]) -> None:
        done = 0
        for answer in answers:
            if isinstance(answer, GoQueueError):
                self._refused.labels(answer.code.value).inc()
            else:
                done += 1
        if done:
            self._finished.labels(action).inc(done)

    def note(self, events: Sequence[Change]) -> None:
        for event in events:
            if isinstance(event, Postponed) and event.is_expired:
                self.expired.inc(len(event.items))
            elif isinstance(event, Moving):
                self.dead.inc(len(event.letters))
