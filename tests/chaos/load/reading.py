"""Readers of partitions, without a group: one reads on and on, the other begins again somewhere every few seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.chaos.history import Op, Phase, Place, wall_ms
from tests.chaos.load.draining import Drain, Left
from tests.chaos.load.job import QUICK, Job, Work, close, confluent, failure_text
from tests.chaos.load.producing import TOPIC, Produce

_BATCH: Final = 500
_POLL_S: Final = 0.3
_SEEK_S: Final = 8.0
_PASSING: Final = ("MSG_SIZE_TOO_LARGE",)  # said of answers without a record, and then it reads on


class Read:
    name = "read"
    topics: Mapping[str, int] = Produce.topics
    needs: Sequence[str] = (Produce.name,)

    def works(self, job: Job) -> Mapping[str, Work]:
        partitions = self.topics[TOPIC]
        steady = Reader(job, TOPIC, partitions, "reader")
        return {"reader": steady.run, "seeker": Reader(job, TOPIC, partitions, "seeker", seeks=True).run}


class Reader:
    def __init__(self, job: Job, topic: str, partitions: int, name: str, *, seeks: bool = False) -> None:
        self._job = job
        self._topic = topic
        self._name = name
        self._seeks = seeks
        self._chance = job.chance(name)
        self._next = dict.fromkeys(range(partitions), 0)
        self._open: set[int] = set()  # partitions whose end was not seen since they were assigned
        self._client = confluent.Consumer(
            {
                "bootstrap.servers": job.kafka,
                "group.id": f"none-{name}",  # never used: nothing is committed
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",  # a position that is not there any more is news
                "fetch.wait.max.ms": 100,
                "enable.partition.eof": True,
                **QUICK,
            }
        )

    def run(self) -> None:
        drain = Drain(self._job, self._name, self._left)
        self._assign()
        seek_at = time.monotonic() + _SEEK_S
        while not self._job.stopping.is_set():
            if self._seeks and time.monotonic() > seek_at:
                self._next = {at: self._chance.randint(0, end) for at, end in self._next.items()}
                self._assign()
                seek_at = time.monotonic() + _SEEK_S
            self._poll()
        self._assign()  # so that every end is told once more
        while not drain.is_over:
            self._poll()
        close(self._client)

    def _left(self) -> Left:
        text = f"the ends of {sorted(self._open)} of {self._topic} were not seen" if self._open else ""
        return Left(text, tuple(self._next.values()))

    def _assign(self) -> None:
        places = [Place(partition, offset) for partition, offset in self._next.items()]
        self._job.recorder.record(self._name, Op.ASSIGN, Phase.OK, topic=self._topic, places=places)
        self._open = set(self._next)
        self._client.assign([confluent.TopicPartition(self._topic, at, offset) for at, offset, _ in places])

    def _poll(self) -> None:
        messages = self._client.consume(_BATCH, _POLL_S)
        errors = [one.error() for one in messages if one.error() is not None and not _is_end(one)]
        places = [
            Place(one.partition(), one.offset(), (one.value() or b"").decode())
            for one in messages
            if one.error() is None
        ]
        for one in messages:
            if _is_end(one):
                self._open.discard(one.partition())
            elif one.error() is None:
                self._open.add(one.partition())
        if places:
            self._told(Phase.OK, places=places, wall_ms=wall_ms(), is_committed_only=True)
            self._next |= {partition: offset + 1 for partition, offset, _ in places}
        for error in errors:
            self._told(Phase.UNKNOWN, note=failure_text(error))
        if any(
            error.name() not in _PASSING for error in errors
        ):  # such a partition is not read until assigned again
            self._job.pause(0.2)
            self._assign()

    def _told(self, phase: Phase, **values: Any) -> None:
        self._job.recorder.record(self._name, Op.POLL, phase, topic=self._topic, **values)


def _is_end(message: Any) -> bool:
    error = message.error()
    return error is not None and error.code() == confluent.KafkaError._PARTITION_EOF
