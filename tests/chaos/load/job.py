"""What a load is told, and what all loads share."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import confluent_kafka
import confluent_kafka.admin
from tests.chaos.history import Recorder

confluent: Any = confluent_kafka  # its types and its documentation disagree
admin: Any = confluent_kafka.admin

PARTITIONS: Final = 6
IN_SYNC_MIN: Final = 2
IDLE_S: Final = 5.0  # so long nothing comes when all has come
DRAIN_S: Final = 60.0  # after everything has healed
_CREATE_S: Final = 60.0
# A node that is cut off answers nobody: whoever waits for it must look elsewhere soon, as a client with these settings does.
QUICK: Final[Mapping[str, object]] = {
    "log_level": 2,
    "socket.timeout.ms": 6_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 10_000,
    "topic.metadata.refresh.fast.interval.ms": 100,
}


class Job(NamedTuple):
    kafka: str
    http: Sequence[str]
    replicas: int
    seed: int
    recorder: Recorder
    stopping: threading.Event  # nothing new is begun, and what is left is worked off

    def chance(self, name: str) -> random.Random:
        return random.Random(f"{self.seed}-{name}")

    def pause(self, seconds: float) -> None:
        """Between two operations; shorter when it is time to stop."""
        self.stopping.wait(seconds)


Work = Callable[[], None]


class Load(Protocol):
    name: str
    topics: Mapping[str, int]  # with their partition counts
    needs: Sequence[str]  # other loads that write what this one reads

    def works(self, job: Job) -> Sequence[Work]:
        """Each runs in a thread of its own and ends soon after `job.stopping`."""


class Drain:
    """Whether a consumer may go yet: when it is time, and nothing has come for a while."""

    def __init__(self, job: Job, *, idle_s: float = IDLE_S) -> None:
        self._job = job
        self._idle_s = idle_s
        self._busy_at = time.monotonic()
        self._stopping_at: float | None = None

    def saw(self, count: int) -> None:
        if count:
            self._busy_at = time.monotonic()

    @property
    def is_over(self) -> bool:
        if not self._job.stopping.is_set():
            return False
        now = time.monotonic()
        if self._stopping_at is None:
            self._stopping_at = now
        return now - max(self._busy_at, self._stopping_at) > self._idle_s or now - self._stopping_at > DRAIN_S


def create_topics(job: Job, topics: Mapping[str, int]) -> None:
    client = admin.AdminClient({"bootstrap.servers": job.kafka, **QUICK})
    deadline = time.monotonic() + _CREATE_S
    settings = {"min.insync.replicas": str(min(IN_SYNC_MIN, job.replicas))}
    for topic, count in topics.items():
        while True:
            new = admin.NewTopic(topic, count, job.replicas, config=settings)
            try:
                client.create_topics([new], request_timeout=10.0)[topic].result(15.0)
                break
            except confluent.KafkaException as error:
                if error.args[0].code() == confluent.KafkaError.TOPIC_ALREADY_EXISTS:
                    break
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def failure_text(error: object) -> str:
    """What a Kafka client says, short: its code and, of the rest, the beginning."""
    cause: Any = error.args[0] if isinstance(error, confluent.KafkaException) else error
    return f"{cause.name()}: {cause.str()}"[:200] if hasattr(cause, "name") else str(cause)[:200]
