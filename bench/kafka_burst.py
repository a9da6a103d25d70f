"""As fast as the client can: send a burst until it is acknowledged, and read it back."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, Message

from bench.child import cpu_s_of
from bench.kafka_client import (
    STATISTICS_MS,
    Sender,
    assign,
    checked_content,
    kept_spans,
    new_consumer,
)
from bench.kafka_plans import Consume, Consumed, Produce, Produced, Spreading
from bench.kafka_values import Readback, value_of
from bench.line import require

_TIMEOUT_S = 120.0
_CONSUME_COUNT = 1_000


class _Meter:
    """Wall time, and processor time of the server and of this process, from here to `stop`."""

    def __init__(self, server_pids: Sequence[int]) -> None:
        self._pids = server_pids
        self._server_s, self._client_s = cpu_s_of(server_pids), _own_cpu_s()
        self.started = time.perf_counter()

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self.started
        self.client_cpu_s = _own_cpu_s() - self._client_s
        self.server_cpu_s = cpu_s_of(self._pids) - self._server_s


def produce(plan: Produce) -> Produced:
    values = [value_of(index, plan.value_bytes) for index in range(plan.count)]
    is_counted = plan.spreading is Spreading.ROUND_ROBIN
    settings: dict[str, object] = (
        {"batch.num.messages": 1, "statistics.interval.ms": STATISTICS_MS} if is_counted else {}
    )
    senders = [Sender(plan.target, plan.acks, settings) for _ in range(plan.producer_count)]
    first_count = plan.target.partition_count if is_counted else 0
    _send(senders, values, range(first_count), plan)
    meter = _Meter(plan.target.pids)
    _send(senders, values, range(first_count, plan.count), plan)
    meter.stop()
    if is_counted:
        _await_count(senders, plan.count)
    request_count = plan.count - first_count if is_counted else None
    return Produced(meter.seconds, meter.server_cpu_s, meter.client_cpu_s, request_count)


def _send(senders: Sequence[Sender], values: list[bytes], indexes: range, plan: Produce) -> None:
    """Each sender its share, until all of it is acknowledged."""
    for turn, sender in enumerate(senders):
        _send_share(sender, values, indexes[turn :: len(senders)], plan)
    for sender in senders:
        sender.finish(_TIMEOUT_S)


def _send_share(sender: Sender, values: list[bytes], indexes: range, plan: Produce) -> None:
    partition_count = plan.target.partition_count
    match plan.spreading:
        case Spreading.BY_CLIENT:
            sender.send(values[index] for index in indexes)
        case Spreading.ROUND_ROBIN:
            sender.send_to((index % partition_count, values[index]) for index in indexes)
        case Spreading.IN_BLOCKS:
            sender.send_to((index * partition_count // plan.count, values[index]) for index in indexes)


def _await_count(senders: Sequence[Sender], count: int) -> None:
    """The statistics after the last request come with the next turn of the client's timer."""
    deadline = time.monotonic() + _TIMEOUT_S
    while (found := sum(sender.requests.last for sender in senders)) < count and time.monotonic() < deadline:
        for sender in senders:
            sender.serve(STATISTICS_MS / 1_000)
    require(
        found == count, f"{found} requests were sent for {count} messages that were to have their own each"
    )


def consume(plan: Consume) -> Consumed:
    consumer = new_consumer(plan.target)
    try:
        spans = kept_spans(consumer, plan.target)
        end_count = sum(end for _, end in spans)
        require(end_count == plan.count, f"{plan.count} messages were sent, {end_count} are stored")
        kept_count = sum(end - start for start, end in spans)
        require(kept_count == plan.count or not plan.is_everything_kept, f"only {kept_count} are kept")
        meter = _Meter(plan.target.pids)
        assign(consumer, plan.target, spans)
        messages = _read(consumer, kept_count)
        meter.stop()
    finally:
        consumer.close()
    _verify(messages, plan)
    return Consumed(kept_count, meter.seconds, meter.server_cpu_s, meter.client_cpu_s)


def _read(consumer: Consumer, count: int) -> list[Message]:
    """`consume` waits until it has as many as it was asked for, so it is never asked for more than there are."""
    messages: list[Message] = []
    deadline = time.monotonic() + _TIMEOUT_S
    while len(messages) < count:
        messages += consumer.consume(min(_CONSUME_COUNT, count - len(messages)), 1.0)
        require(time.monotonic() < deadline, f"{len(messages)} of {count} messages came in {_TIMEOUT_S:g} s")
    return messages


def _verify(messages: list[Message], plan: Consume) -> None:
    readback = Readback(plan.count, plan.value_bytes, plan.producer_count)
    for message in messages:
        readback.add(*checked_content(message))
    if plan.is_everything_kept:
        readback.require_everything()


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
