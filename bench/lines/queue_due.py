"""Many delays that end: how late each message reaches a reader, while all is well and after kill -9 in the middle.

Every message must come once and never early, or there is no number.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from confluent_kafka import Consumer, TopicPartition

from bench.child import Broker
from bench.delays import publish_delayed
from bench.kafka_values import index_of
from bench.line import Bound, Goal, Line, percentile, require, spread
from bench.queue_plans import Dialect, Queue
from bench.queue_rest import RestQueue
from bench.scale import Run
from bench.workspace import fresh_folder

_TOPIC = "due"
_VALUE_BYTES = 20
_PUBLISHED_PER_S_MIN = 12_000  # until the first is due, all must have been published
_SETTLED_MS = 2_000  # after the start: by then what was due meanwhile should be out
_TIMEOUT_S = 300.0
_LATENESS_MS_MAX = 50
_BATCH_COUNT = 2_000


def run(run: Run) -> list[Line]:
    scale = run.scale.queue
    with fresh_folder(run.folder) as folder:
        with Broker(folder) as broker:
            asyncio.run(RestQueue(Queue(Dialect.REST, _TOPIC, broker.port, broker.pid)).create())
            arrivals = _Arrivals(scale.due_count, scale.due_s)
            publish_delayed(broker, _TOPIC, arrivals.due_ms(), _VALUE_BYTES)
            require(time.time() * 1_000 < arrivals.first_ms, "delays ended while others were published")
            arrivals.read(broker, until_ms=arrivals.middle_ms)
        killed_ms = time.time() * 1_000
        with Broker(folder) as broker:
            ready_ms = time.time() * 1_000
            arrivals.read(broker, until_ms=None)
    before = arrivals.lateness_ms(arrivals.first_ms, arrivals.middle_ms - _SETTLED_MS)
    after = arrivals.lateness_ms(ready_ms + _SETTLED_MS, arrivals.end_ms)
    rate = f"{scale.due_count / scale.due_s:,.0f} delays ending each second"
    down = {
        "down_s": (ready_ms - killed_ms) / 1_000,
        "most_ms": max(arrivals.lateness_ms(0, arrivals.end_ms)),
    }
    return [
        _line(
            "queue.due.lateness",
            f"from when a message is due until a Kafka consumer has it, p99, {rate}",
            before,
        ),
        _line("queue.due.killed", "the same after kill -9 in the middle and a start", after, **down),
    ]


def _line(name: str, text: str, lateness_ms: list[float], **details: float) -> Line:
    return Line(
        name,
        text,
        "ms",
        spread([percentile(lateness_ms, 0.99)]),
        goal=Goal(Bound.VALUE_BELOW, _LATENESS_MS_MAX),
        details={"p50_ms": percentile(lateness_ms, 0.5), "message_count": len(lateness_ms), **details},
    )


class _Arrivals:
    """When each message was due, and when it came."""

    def __init__(self, count: int, over_s: float) -> None:
        self._count = count
        self._step_ms = over_s * 1_000 / count
        self._came_ms: list[float | None] = [None] * count
        self._left_count = count
        self._next: dict[int, int] = {}  # offset by partition
        self.first_ms = int(time.time() * 1_000 + count / _PUBLISHED_PER_S_MIN * 1_000) + 2_000
        self.middle_ms = self.first_ms + over_s * 500
        self.end_ms = self.first_ms + over_s * 1_000

    def due_ms(self) -> Iterator[int]:
        return (self._due(index) for index in range(self._count))

    def _due(self, index: int) -> int:
        return self.first_ms + int(index * self._step_ms)

    def read(self, broker: Broker, *, until_ms: float | None) -> None:
        """Go on reading: until then, or until all have come."""
        consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{broker.ports['kafka']}",
                "group.id": "unused",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "log_level": 2,
            }
        )
        consumer.assign([TopicPartition(_TOPIC, 0, self._next.get(0, 0))])
        deadline_ms = self.end_ms + _TIMEOUT_S * 1_000 if until_ms is None else until_ms
        while self._left_count and (now_ms := time.time() * 1_000) < deadline_ms:
            for message in consumer.consume(_BATCH_COUNT, timeout=0.01):
                require(message.error() is None, f"a reader was told {message.error()}")
                now_ms = time.time() * 1_000
                self._enter(index_of(message.value() or b""), now_ms)
                self._next[0] = (message.offset() or 0) + 1
        consumer.close()
        require(until_ms is not None or not self._left_count, f"{self._left_count} messages never came")

    def _enter(self, index: int, now_ms: float) -> None:
        require(self._came_ms[index] is None, f"message {index} came twice")
        early_ms = self._due(index) - now_ms
        require(early_ms <= 0, f"message {index} came {early_ms:.1f} ms before it was due")
        self._came_ms[index] = now_ms
        self._left_count -= 1

    def lateness_ms(self, start_ms: float, end_ms: float) -> list[float]:
        """Of those that were due in between, in rising order."""
        found = [
            came - due
            for due, came in zip(self.due_ms(), self._came_ms, strict=True)
            if came is not None and start_ms <= due < end_ms
        ]
        require(bool(found), "the broker was not up again before the last message was due")
        return sorted(found)
