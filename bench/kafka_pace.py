"""A steady rate: one thread sends on a clock, another reads, and a message's time runs from when it was due.

The clock ticks once a millisecond at most, and what is due at a tick is sent at once. A sender that is late does not
make a message younger, so a server that stalls shows it in every message of the stall.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer

from bench.child import cpu_s_of
from bench.kafka_client import RequestCounts, Sender, assign, checked_content, kept_spans, new_consumer
from bench.kafka_plans import Pace, Paced
from bench.kafka_values import Readback, value_of
from bench.line import BenchFailed, percentile, require

_WARM_S = 1.5
_TICK_S_MIN = 0.001
_SWITCH_S = 0.0005  # how long one of the two threads may keep the other from running
_FINISH_TIMEOUT_S = 30.0
_DRAIN_COUNT = 500


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which message is due when. Times are seconds of the monotonic clock."""

    begin: float
    per_s: int
    warm_count: int
    count: int

    @property
    def tick_s(self) -> float:
        return max(1 / self.per_s, _TICK_S_MIN)

    @property
    def per_tick(self) -> int:
        return max(1, round(self.per_s * self.tick_s))

    def due(self, index: int) -> float:
        return self.begin + index // self.per_tick * self.tick_s


@dataclass(slots=True)
class _Reader:
    """One consumer: what it got, and how late."""

    consumer: Consumer
    readback: Readback
    fetches: RequestCounts
    latencies_ms: list[float] = field(default_factory=list)

    def drain(self, schedule: Schedule, wait_s: float) -> bool:
        first = self.consumer.poll(wait_s)
        if first is None:
            return False
        messages = [first, *self.consumer.consume(_DRAIN_COUNT, 0)]
        now = time.monotonic()
        for message in messages:
            index = self.readback.add(*checked_content(message))
            if index >= schedule.warm_count:
                self.latencies_ms.append((now - schedule.due(index)) * 1_000)
        return True


@dataclass(slots=True)
class _Window:
    """The measured part of the sending."""

    begin: float = 0.0
    end: float = 0.0
    begin_cpu_s: float = 0.0
    end_cpu_s: float = 0.0
    lateness_ms: list[float] = field(default_factory=list)

    @property
    def cpu_share(self) -> float:
        return (self.end_cpu_s - self.begin_cpu_s) / (self.end - self.begin)


class _Reading(threading.Thread):
    """Drains all readers until each has everything; a failure is kept for the sending thread."""

    def __init__(self, readers: list[_Reader], schedule: Schedule) -> None:
        super().__init__(daemon=True)
        self._readers = readers
        self._schedule = schedule
        self.failure: BenchFailed | None = None

    def run(self) -> None:
        deadline = self._schedule.due(self._schedule.count) + _FINISH_TIMEOUT_S
        wait_s = 0.05 if len(self._readers) == 1 else 0.0
        try:
            while (
                least := min(reader.readback.seen_count for reader in self._readers)
            ) < self._schedule.count:
                sentence = (
                    f"a consumer got {least} of {self._schedule.count} messages and then waited in vain"
                )
                require(time.monotonic() < deadline, sentence)
                is_idle = not sum([reader.drain(self._schedule, wait_s) for reader in self._readers])
                if is_idle and not wait_s:
                    time.sleep(_TICK_S_MIN)
        except BenchFailed as failure:
            self.failure = failure


def pace(plan: Pace) -> Paced:
    sys.setswitchinterval(_SWITCH_S)
    warm_count = int(plan.per_s * _WARM_S)
    count = warm_count + int(plan.per_s * plan.seconds)
    sender = Sender(plan.target, plan.acks)
    readers = [_start_reader(plan, count) for _ in range(plan.consumer_count)]
    try:
        schedule = Schedule(time.monotonic(), plan.per_s, warm_count, count)
        reading = _Reading(readers, schedule)
        reading.start()
        window = _send(sender, plan, schedule, reading)
        sender.finish(_FINISH_TIMEOUT_S)
        reading.join(_FINISH_TIMEOUT_S * 2)
        require(not reading.is_alive(), "the reading thread hangs")
        if reading.failure is not None:
            raise reading.failure
    finally:
        for reader in readers:
            reader.consumer.close()
    return _summary(readers, window)


def _start_reader(plan: Pace, count: int) -> _Reader:
    fetches = RequestCounts("Fetch")
    consumer = new_consumer(plan.target, fetches)
    assign(consumer, plan.target, kept_spans(consumer, plan.target))
    return _Reader(consumer, Readback(count, plan.value_bytes), fetches)


def _send(sender: Sender, plan: Pace, schedule: Schedule, reading: _Reading) -> _Window:
    window = _Window()
    for first in range(0, schedule.count, schedule.per_tick):
        due = schedule.due(first)
        if (wait_s := due - time.monotonic()) > 0:
            time.sleep(wait_s)
        if first >= schedule.warm_count:
            if not window.begin:
                window.begin, window.begin_cpu_s = time.monotonic(), cpu_s_of(plan.target.pids)
            window.lateness_ms.append((time.monotonic() - due) * 1_000)
        end = min(first + schedule.per_tick, schedule.count)
        sender.send(value_of(index, plan.value_bytes) for index in range(first, end))
        sender.serve()
        if reading.failure is not None:
            raise reading.failure
    window.end, window.end_cpu_s = time.monotonic(), cpu_s_of(plan.target.pids)
    return window


def _summary(readers: list[_Reader], window: _Window) -> Paced:
    latencies = sorted(latency for reader in readers for latency in reader.latencies_ms)
    begin_us, end_us = int(window.begin * 1e6), int(window.end * 1e6)
    return Paced(
        p50_ms=percentile(latencies, 0.5),
        p99_ms=percentile(latencies, 0.99),
        p999_ms=percentile(latencies, 0.999),
        lateness_p99_ms=percentile(sorted(window.lateness_ms), 0.99),
        server_cpu_share=window.cpu_share,
        fetches_per_s=sum(reader.fetches.per_s(begin_us, end_us) for reader in readers),
    )
