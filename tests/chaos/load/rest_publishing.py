"""Publishers over REST, each request to a node of chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.chaos.history import Op, Phase
from tests.chaos.load.job import PARTITIONS, Job, Work

from goqueue.client.rest import ApiError, NewMessage, RestClient, Unreachable

TOPIC: Final = "rest"
_PUBLISHERS: Final = 2
_BATCH: Final = 5
_PAUSE_S: Final = 0.1
_TIMEOUT_S: Final = 10.0
# With these nothing was stored; with any other it is not known.
_REFUSED: Final = frozenset(
    {"NOT_LEADER", "PEER_UNREACHABLE", "NOT_READY", "DISK_FULL", "TOPIC_NOT_FOUND", "PARTITION_NOT_FOUND"}
)


class Rest:
    name = "rest"
    topics: Mapping[str, int] = {TOPIC: PARTITIONS}
    needs: Sequence[str] = ()

    def works(self, job: Job) -> Mapping[str, Work]:
        names = [f"rest-{index}" for index in range(_PUBLISHERS)]
        return {name: RestPublisher(job, TOPIC, name).run for name in names}


class RestPublisher:
    def __init__(self, job: Job, topic: str, name: str) -> None:
        self._job = job
        self._topic = topic
        self._name = name
        self._chance = job.chance(name)
        self._sent_count = 0
        self._clients = [RestClient(f"http://{one}", timeout_s=_TIMEOUT_S) for one in job.http]

    def run(self) -> None:
        while not self._job.stopping.is_set():
            self._publish(self._chance.randint(1, _BATCH))
            self._job.pause(_PAUSE_S)

    def _publish(self, count: int) -> None:
        values = [f"{self._name}-{self._sent_count + at}" for at in range(count)]
        self._sent_count += count
        recorder = self._job.recorder
        numbers = [
            recorder.invoke(self._name, Op.PUBLISH, topic=self._topic, value=value) for value in values
        ]
        messages = [NewMessage(value.encode(), key=value.encode()) for value in values]
        try:
            results = self._chance.choice(self._clients).publish(self._topic, messages)
        except Unreachable as error:
            phase = Phase.UNKNOWN if error.was_sent else Phase.FAIL
            for number in numbers:
                self._ended(number, phase, note=error.sentence)
            return
        except ApiError as error:
            for number in numbers:
                self._ended(number, _phase(error.code), note=f"{error.code}: {error.sentence}"[:200])
            return
        for number, one in zip(numbers, results, strict=True):
            if one.code is None:
                self._ended(number, Phase.OK, partition=one.partition, offset=one.offset)
            else:
                self._ended(number, _phase(one.code), note=f"{one.code}: {one.error}"[:200])

    def _ended(self, number: int, phase: Phase, **values: object) -> None:
        self._job.recorder.record(self._name, Op.PUBLISH, phase, number=number, topic=self._topic, **values)


def _phase(code: str) -> Phase:
    return Phase.FAIL if code in _REFUSED else Phase.UNKNOWN
