"""Share consumers, as librdkafka has them: accept, release, reject, and some that are not answered in time."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.chaos.history import Op, Phase, Place, wall_ms
from tests.chaos.load.draining import Drain, left_of_group
from tests.chaos.load.job import QUICK, Job, Work, close, confluent, failure_text
from tests.chaos.load.producing import Publisher

from goqueue.client.connection import Connection, Unreachable, error_of

TOPIC: Final = "shared"
GROUP: Final = "sharers"
_PARTITIONS: Final = 3
_MEMBERS: Final = 2
_BURST: Final = 5
_POLL_S: Final = 0.3
_LOCK_MS: Final = 15_000
_CALL_S: Final = 15.0
_SET_UP_S: Final = 60.0
_ACCEPT, _RELEASE, _REJECT = 1, 2, 3
_RELEASE_RATE: Final = 0.05
_REJECT_RATE: Final = 0.02


class Share:
    name = "share"
    topics: Mapping[str, int] = {TOPIC: _PARTITIONS}
    needs: Sequence[str] = ()

    def works(self, job: Job) -> Mapping[str, Work]:
        _set_up(job)
        names = [f"sharer-{index}" for index in range(_MEMBERS)]
        members = {name: ShareMember(job, name).run for name in names}
        return {"shared": Publisher(job, TOPIC, "shared", burst=_BURST).run, **members}


class ShareMember:
    """What it takes is its own until the broker says otherwise: how long is the group's setting, so no time is recorded."""

    def __init__(self, job: Job, name: str) -> None:
        self._job = job
        self._name = name
        self._chance = job.chance(name)

    def run(self) -> None:
        drain = Drain(self._job, self._name, left_of_group(self._job, GROUP, Share.topics))
        client = confluent.ShareConsumer(
            {
                "bootstrap.servers": self._job.kafka,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                **QUICK,
            }
        )
        client.subscribe([TOPIC])
        while not drain.is_over:
            try:
                self._step(client)
            except confluent.KafkaException as error:
                self._told(Op.TAKE, Phase.UNKNOWN, note=failure_text(error))
                self._job.pause(0.2)
        close(client)

    def _step(self, client: Any) -> None:
        number = self._job.recorder.invoke(self._name, Op.TAKE, topic=TOPIC, group=GROUP)
        messages = client.poll(_POLL_S)
        for one in messages:
            if one.error() is not None:
                self._told(Op.TAKE, Phase.UNKNOWN, note=failure_text(one.error()))
        good = [one for one in messages if one.error() is None]
        if not good:
            return
        places = [Place(one.partition(), one.offset(), one.value().decode()) for one in good]
        self._told(Op.TAKE, Phase.OK, number=number, places=places, wall_ms=wall_ms())
        self._finish(client, good, places)

    def _finish(self, client: Any, messages: Sequence[Any], places: Sequence[Place]) -> None:
        begun: dict[int, list[tuple[Op, int, Place]]] = defaultdict(list)
        for message, place in zip(messages, places, strict=True):
            chosen = self._chance.random()
            says = _RELEASE if chosen < _RELEASE_RATE else _ACCEPT
            says = _REJECT if chosen > 1 - _REJECT_RATE else says
            says = _ACCEPT if self._job.stopping.is_set() else says
            op = Op.ACK if says == _ACCEPT else Op.NACK
            number = self._job.recorder.invoke(self._name, op, topic=TOPIC, group=GROUP, places=[place])
            begun[place.partition].append((op, number, place))
            client.acknowledge(message, says)
        try:
            results = client.commit_sync(_CALL_S)
            errors = {place.partition: error for place, error in results.items()}
        except confluent.KafkaException as error:
            errors = dict.fromkeys(begun, error)
        for partition, ones in begun.items():
            failure = errors.get(partition)
            is_ok = failure is None and partition in errors
            for op, number, place in ones:
                phase = Phase.OK if is_ok else Phase.UNKNOWN
                note = "" if failure is None else failure_text(failure)
                self._told(op, phase, number=number, places=[place], note=note)

    def _told(self, op: Op, phase: Phase, **values: Any) -> None:
        self._job.recorder.record(self._name, op, phase, topic=TOPIC, group=GROUP, **values)


def _set_up(job: Job) -> None:
    """The group reads from the beginning, and gives up on a record that nobody answers for soon."""
    wanted = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(_LOCK_MS)}
    deadline = time.monotonic() + _SET_UP_S
    for address in itertools.cycle(job.http):
        connection = Connection(f"http://{address}", timeout_s=_CALL_S)
        try:
            reply = connection.request("PATCH", f"/groups/{GROUP}", body={"config": wanted})
            if reply.status < 300:
                return
            failure: Exception = error_of(reply)
        except Unreachable as error:
            failure = error
        finally:
            connection.close()
        if time.monotonic() > deadline:
            raise failure
        time.sleep(0.5)
