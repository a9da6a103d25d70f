"""Members of consumer groups that commit what they have read, of the classic protocol and of the new one. Now and then one goes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.chaos.history import Op, Phase, Place
from tests.chaos.load.draining import Drain, left_of_group
from tests.chaos.load.job import QUICK, Hung, Job, Work, close, confluent, failure_text
from tests.chaos.load.producing import TOPIC, Produce

_MEMBERS: Final = 2
_BATCH: Final = 200
_GATHER_S: Final = 0.25
_LIFE_S: Final = (10.0, 40.0)
_CALL_S: Final = 15.0
_LAST_TRIES: Final = 10
_LAST_PAUSE_S: Final = 1.0
_REFUSED: Final = (  # and nothing was committed
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "REBALANCE_IN_PROGRESS",
    "FENCED_MEMBER_EPOCH",
    "STALE_MEMBER_EPOCH",
    "NOT_COORDINATOR",
    "_NO_OFFSET",
)


class Grouped:
    """One protocol, one group."""

    topics: Mapping[str, int] = Produce.topics
    needs: Sequence[str] = (Produce.name,)

    def __init__(self, protocol: str) -> None:
        self.name = f"group-{protocol}"
        self._settings: dict[str, object] = {"group.protocol": protocol}
        if protocol == "classic":
            self._settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}

    def works(self, job: Job) -> Mapping[str, Work]:
        names = [f"{self.name}-{at}" for at in range(_MEMBERS)]
        return {name: Member(job, self.name, name, self._settings).run for name in names}


class Member:
    """A member over its lives: it closes and comes back under a new identity."""

    def __init__(self, job: Job, group: str, name: str, settings: Mapping[str, object]) -> None:
        self._job = job
        self._group = group
        self._base = name
        self._name = name
        self._settings = settings
        self._chance = job.chance(name)
        self._gathered: list[Any] = []

    def run(self) -> None:
        drain = Drain(self._job, self._base, left_of_group(self._job, self._group, Produce.topics))
        life = 0
        while not drain.is_over:
            life += 1
            self._name = f"{self._base}.{life}"
            self._live(drain)
        self._tell_last()

    def _live(self, drain: Drain) -> None:
        client = self._connect()
        ends_at = time.monotonic() + self._chance.uniform(*_LIFE_S)
        client.subscribe([TOPIC], on_assign=self._came, on_revoke=self._went, on_lost=self._lost)
        while not drain.is_over and (time.monotonic() < ends_at or self._job.stopping.is_set()):
            self._gather(client)
            if self._gathered:
                self._commit(client)
        close(client)

    def _gather(self, client: Any) -> None:
        """One by one: what a rebalance takes away while we gather is not worked on."""
        self._gathered = []
        ends_at = time.monotonic() + _GATHER_S
        while len(self._gathered) < _BATCH and (left_s := ends_at - time.monotonic()) > 0:
            message = client.poll(left_s)
            if message is not None and message.error() is None:
                self._gathered.append(message)
            elif message is not None:
                self._told(Op.POLL, Phase.UNKNOWN, note=failure_text(message.error()))

    def _commit(self, client: Any) -> None:
        read = [Place(one.partition(), one.offset(), one.value().decode()) for one in self._gathered]
        self._told(Op.POLL, Phase.OK, places=read)
        ends = {partition: offset + 1 for partition, offset, _ in read}
        places = [Place(partition, offset) for partition, offset in ends.items()]
        number = self._job.recorder.invoke(
            self._name, Op.COMMIT, topic=TOPIC, group=self._group, places=places
        )
        offsets = [confluent.TopicPartition(TOPIC, at, offset) for at, offset in ends.items()]
        try:
            answers = client.commit(offsets=offsets, asynchronous=False)
        except confluent.KafkaException as error:
            is_refused = error.args[0].name() in _REFUSED
            phase = Phase.FAIL if is_refused else Phase.UNKNOWN
            self._told(Op.COMMIT, phase, number=number, note=failure_text(error))
            return
        failed = [one.error for one in answers if one.error is not None]
        if failed:
            self._told(Op.COMMIT, Phase.UNKNOWN, number=number, note=failure_text(failed[0]))
        else:
            self._told(Op.COMMIT, Phase.OK, number=number)

    # ---------------------------------------------------------------- rebalances

    def _came(self, client: Any, places: list[Any]) -> None:
        self._told(Op.ASSIGN, Phase.OK, places=[Place(one.partition, 0) for one in places])
        self._ask(client, [one.partition for one in places])

    def _went(self, _: Any, places: list[Any]) -> None:
        gone = {one.partition for one in places}
        self._gathered = [one for one in self._gathered if one.partition() not in gone]
        self._told(Op.REVOKE, Phase.OK, places=[Place(at, 0) for at in sorted(gone)])

    def _lost(self, client: Any, places: list[Any]) -> None:
        self._went(client, places)

    # ---------------------------------------------------------------- positions

    def _ask(self, client: Any, partitions: Sequence[int], *, note: str = "") -> bool:
        number = self._job.recorder.invoke(self._name, Op.COMMITTED, topic=TOPIC, group=self._group)
        try:
            answers = client.committed(
                [confluent.TopicPartition(TOPIC, at) for at in partitions], timeout=_CALL_S
            )
            failed = [one.error for one in answers if one.error is not None]
        except confluent.KafkaException as error:
            answers, failed = [], [error]
        if failed:
            self._told(Op.COMMITTED, Phase.UNKNOWN, number=number, note=failure_text(failed[0]))
            return False
        places = [Place(one.partition, max(0, one.offset)) for one in answers]
        self._told(Op.COMMITTED, Phase.OK, number=number, places=places, note=note)
        return True

    def _tell_last(self) -> None:
        client = self._connect()
        for _ in range(_LAST_TRIES):
            if self._ask(client, range(Produce.topics[TOPIC]), note="last"):
                return
            time.sleep(_LAST_PAUSE_S)  # its coordinator may be on the move
        raise Hung(f"the positions of {self._group} were not told in {_LAST_TRIES} tries")

    def _connect(self) -> Any:
        return confluent.Consumer(
            {
                "bootstrap.servers": self._job.kafka,
                "group.id": self._group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                **self._settings,
                **QUICK,
            }
        )

    def _told(self, op: Op, phase: Phase, **values: Any) -> None:
        self._job.recorder.record(self._name, op, phase, topic=TOPIC, group=self._group, **values)
