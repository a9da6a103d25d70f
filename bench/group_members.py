"""Members of one consumer group, each in a thread of its own, while messages come to every partition all the time: who has which
partitions when, and when each partition's messages came."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from confluent_kafka import Consumer, Producer

from bench.line import require

TICK_S = 0.02  # one message to every partition
_POLL_S = 0.02
_TIMEOUT_S = 60.0
_CLIENT = {"metadata.recovery.strategy": "none", "log_level": 0}


@dataclass(slots=True)
class Receipts:
    """When messages came, by partition, on the monotonic clock."""

    times: dict[int, list[float]] = field(default_factory=dict)

    def add(self, partition: int) -> None:
        self.times.setdefault(partition, []).append(time.monotonic())

    def longest_gap_s(self, partition: int, begin: float, end: float) -> float:
        """Between two messages of a partition, in that time."""
        inside = [at for at in self.times.get(partition, ()) if begin <= at <= end]
        return max((later - earlier for earlier, later in pairwise([begin, *inside, end])), default=0.0)


class Member(threading.Thread):
    """From its first moment until `leave`."""

    def __init__(self, settings: Mapping[str, object], topic: str, receipts: Receipts) -> None:
        super().__init__(daemon=True)
        self._settings = settings
        self._topic = topic
        self._receipts = receipts
        self._is_leaving = threading.Event()
        self.partitions: frozenset[int] = frozenset()
        self.failure: str | None = None

    def run(self) -> None:
        consumer = Consumer({**_CLIENT, **self._settings})
        consumer.subscribe([self._topic])
        while not self._is_leaving.is_set():
            message = consumer.poll(_POLL_S)
            self.partitions = frozenset(place.partition for place in consumer.assignment())
            if message is None:
                continue
            error, partition = message.error(), message.partition()
            if error is not None:
                self.failure = str(error)
            elif partition is not None:
                self._receipts.add(partition)
        self.partitions = frozenset()
        consumer.close()

    def leave(self) -> None:
        """Begins to; it is a thread of its own."""
        self._is_leaving.set()


class Traffic(threading.Thread):
    """A message to every partition, every `TICK_S`, with acks=all, until it is stopped."""

    def __init__(self, address: str, topic: str, partition_count: int) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({**_CLIENT, "bootstrap.servers": address, "acks": "all"})
        self._topic = topic
        self._partition_count = partition_count
        self._is_over = threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        while not self._is_over.is_set():
            for partition in range(self._partition_count):
                self._producer.produce(self._topic, b"x" * 100, partition=partition)
            self._producer.poll(0)
            due += TICK_S
            time.sleep(max(0.0, due - time.monotonic()))
        self._producer.flush(_TIMEOUT_S)

    def stop(self) -> None:
        self._is_over.set()
        self.join(_TIMEOUT_S)


def are_balanced(members: Sequence[Member], partition_count: int) -> bool:
    """Each partition is with one of them, and nobody has two more than another."""
    held = [member.partitions for member in members]
    sizes = [len(one) for one in held]
    everything = frozenset[int]().union(*held)
    return sum(sizes) == len(everything) == partition_count and max(sizes) - min(sizes) <= 1


def wait_until(is_so: Callable[[], bool], what: str, *, timeout_s: float = _TIMEOUT_S) -> float:
    """When it was, on the monotonic clock."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        require(time.monotonic() < deadline, f"{what} did not happen within {timeout_s:g} s")
        time.sleep(0.002)
    return time.monotonic()
