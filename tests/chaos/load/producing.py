"""Idempotent producers with acks=all, to keyed partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.chaos.history import Op, Phase
from tests.chaos.load.job import PARTITIONS, QUICK, Hung, Job, Work, confluent, failure_text

TOPIC: Final = "keyed"
_PRODUCERS: Final = 2
_BURST: Final = 20
_PAUSE_S: Final = 0.1
_KEYS: Final = 100
# A client that gives up a message which may be stored begins anew with all that it has not heard of: then some are there twice, and it
# is nobody's mistake but that of who made it so impatient.
_MESSAGE_MS: Final = 180_000
_FLUSH_S: Final = 195.0
# What librdkafka refuses before it has sent anything.
_NEVER_SENT: Final = ("_QUEUE_FULL", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "MSG_SIZE_TOO_LARGE")


class Produce:
    name = "produce"
    topics: Mapping[str, int] = {TOPIC: PARTITIONS}
    needs: Sequence[str] = ()

    def works(self, job: Job) -> Mapping[str, Work]:
        names = [f"producer-{index}" for index in range(_PRODUCERS)]
        return {name: Publisher(job, TOPIC, name).run for name in names}


class Publisher:
    """Values are its name and a number; its client is replaced when it is broken for good."""

    def __init__(self, job: Job, topic: str, name: str, *, burst: int = _BURST) -> None:
        self._job = job
        self._topic = topic
        self._name = name
        self._burst = burst
        self._chance = job.chance(name)
        self._client = self._connect()
        self._sent_count = 0

    def run(self) -> None:
        while not self._job.stopping.is_set():
            for _ in range(self._chance.randint(1, self._burst)):
                self.send()
            self._client.poll(0)
            self._job.pause(_PAUSE_S)
        self.flush()

    def send(self, *, headers: Sequence[tuple[str, bytes]] = (), due_ms: int = 0) -> None:
        self._sent_count += 1
        value = f"{self._name}-{self._sent_count}"
        recorder = self._job.recorder
        number = recorder.invoke(self._name, Op.PUBLISH, topic=self._topic, value=value, due_ms=due_ms)
        try:
            self._client.produce(
                self._topic,
                value=value.encode(),
                key=str(self._chance.randrange(_KEYS)).encode(),
                headers=list(headers),
                on_delivery=lambda error, message: self._reported(number, error, message),
            )
        except BufferError as error:
            self._ended(number, Phase.FAIL, str(error))
            self._client.poll(0.5)
        except confluent.KafkaException as error:
            self._ended(number, Phase.FAIL, failure_text(error))
            self._replace()

    def poll(self) -> None:
        self._client.poll(0)

    def flush(self) -> None:
        """Longer than the client keeps a message: then there is an outcome for each."""
        left_count = self._client.flush(_FLUSH_S)
        if left_count:
            raise Hung(f"{left_count} messages have no outcome after {_FLUSH_S:.0f} s")

    def _reported(self, number: int, error: Any, message: Any) -> None:
        if error is None:
            # librdkafka does not know the offset of what was acknowledged with what came after it.
            offset = -1 if message.offset() is None else message.offset()
            where = {"partition": message.partition(), "offset": offset}
            self._job.recorder.record(
                self._name, Op.PUBLISH, Phase.OK, number=number, topic=self._topic, **where
            )
            return
        phase = Phase.FAIL if error.name() in _NEVER_SENT else Phase.UNKNOWN
        self._ended(number, phase, f"partition {message.partition()}: {failure_text(error)}")

    def _ended(self, number: int, phase: Phase, note: str) -> None:
        self._job.recorder.record(self._name, Op.PUBLISH, phase, number=number, topic=self._topic, note=note)

    def _connect(self) -> Any:
        return confluent.Producer(
            {
                "bootstrap.servers": self._job.kafka,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": _MESSAGE_MS,
                "request.timeout.ms": 5_000,
                "error_cb": self._noticed,
                **QUICK,
            }
        )

    def _noticed(self, error: Any) -> None:
        """A producer that is broken for good says so once; its next `produce` raises, and it is replaced."""
        if error.fatal():
            print(f"{self._name}: {failure_text(error)}", flush=True)

    def _replace(self) -> None:
        """After an error that ends an idempotent producer; what it still holds is reported as not known."""
        self._client.purge()
        self._client.flush(5.0)
        self._client = self._connect()
