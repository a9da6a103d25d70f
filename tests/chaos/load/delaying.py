"""Records that are to be delivered some seconds later, and a reader that sees when they come."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from tests.chaos.history import wall_ms
from tests.chaos.load.draining import Drain, left_of_delays
from tests.chaos.load.job import Job, Work
from tests.chaos.load.producing import Publisher
from tests.chaos.load.reading import Reader

from goqueue.model.delay import DELIVER_AT_HEADER

TOPIC: Final = "delayed"
_PARTITIONS: Final = 3
_PAUSE_S: Final = 0.1
_DELAY_MS: Final = (500, 8_000)


class Delay:
    name = "delay"
    topics: Mapping[str, int] = {TOPIC: _PARTITIONS}
    needs: Sequence[str] = ()

    def works(self, job: Job) -> Mapping[str, Work]:
        return {"delayer": lambda: _send(job), "due": Reader(job, TOPIC, _PARTITIONS, "due").run}


def _send(job: Job) -> None:
    publisher = Publisher(job, TOPIC, "delayer")
    chance = job.chance("delays")
    while not job.stopping.is_set():
        due_ms = wall_ms() + chance.randint(*_DELAY_MS)
        publisher.send(headers=[(DELIVER_AT_HEADER, str(due_ms).encode())], due_ms=due_ms)
        publisher.poll()
        job.pause(_PAUSE_S)
    publisher.flush()
    drain = Drain(job, "delayer", left_of_delays(job, TOPIC))
    while not drain.is_over:
        time.sleep(_PAUSE_S)
