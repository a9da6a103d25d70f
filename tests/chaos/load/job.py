"""What a load is told, and what all loads share."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import confluent_kafka
import confluent_kafka.admin
from tests.chaos.history import Recorder

T = TypeVar("T")

confluent: Any = confluent_kafka  # its types and its documentation disagree
admin: Any = confluent_kafka.admin

PARTITIONS: Final = 6
IN_SYNC_MIN: Final = 2
END_S: Final = 480.0  # for all clients of a load together, since they were told to come to an end, on the slowest machine
DEBUG_VARIABLE: Final = "CHAOS_DEBUG"  # what librdkafka is to tell of itself, as its setting `debug` names it
_CREATE_S: Final = 60.0
_CLOSE_S: Final = 30.0
_DEBUG: Final = os.environ.get(DEBUG_VARIABLE, "")
# A node that is cut off answers nobody: whoever waits for it must look elsewhere soon, as a client with these settings does.
QUICK: Final[Mapping[str, object]] = {
    **({"debug": _DEBUG, "log_level": 7} if _DEBUG else {"log_level": 2}),
    "socket.timeout.ms": 6_000,
    "socket.connection.setup.timeout.ms": 3_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 10_000,
    "topic.metadata.refresh.fast.interval.ms": 100,
    # When every broker is gone librdkafka 2.16 bootstraps anew, and then may wait for ever on the handle of an old coordinator,
    # whatever the call's timeout. Here brokers come back where they were.
    "metadata.recovery.strategy": "none",
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


class Hung(Exception):
    """A call that has no time limit of its own did not end; the sentence says which."""


class Load(Protocol):
    name: str
    topics: Mapping[str, int]  # with their partition counts
    needs: Sequence[str]  # other loads that write what this one reads

    def works(self, job: Job) -> Mapping[str, Work]:
        """By the name of the client. Each runs in a thread of its own and ends soon after `job.stopping`."""


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


def bounded(call: Callable[[], T], seconds: float, what: str) -> T:
    """Some calls of clients wait for brokers as long as they like, whatever time they are given. Raises Hung when that is too long;
    the client is then of no use any more."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised where the result is waited for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return done.result(seconds)
    except FutureTimeoutError:
        raise Hung(f"{what} did not return within {seconds:.0f} s") from None


def close(client: Any) -> None:
    bounded(client.close, _CLOSE_S, "close")


def failure_text(error: object) -> str:
    """What a Kafka client says, short: its code and, of the rest, the beginning."""
    cause: Any = error.args[0] if isinstance(error, confluent.KafkaException) else error
    return f"{cause.name()}: {cause.str()}"[:200] if hasattr(cause, "name") else str(cause)[:200]
