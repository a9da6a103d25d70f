"""Consume, transform, produce: each batch is one transaction with its positions, and one in five is aborted on purpose."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tests.chaos.history import Op, Phase, Place
from tests.chaos.load.draining import Drain, left_of_group
from tests.chaos.load.job import QUICK, Hung, Job, Work, bounded, close, confluent, failure_text
from tests.chaos.load.producing import TOPIC, Produce
from tests.chaos.load.reading import Reader
from tests.chaos.transaction_checkers import output_of
from tests.support.group_beginnings import commit_beginnings

OUTPUT: Final = "transformed"
GROUP: Final = "transformers"
_WORKERS: Final = 2
_BATCH: Final = 200
_GATHER_S: Final = 0.3
_ABORT_RATE: Final = 0.2
_CALL_S: Final = 20.0
_GRACE_S: Final = 15.0
_PATIENCE_S: Final = 60.0


class Transact:
    name = "transact"
    topics: Mapping[str, int] = {**Produce.topics, OUTPUT: Produce.topics[TOPIC]}
    needs: Sequence[str] = (Produce.name,)

    def works(self, job: Job) -> Mapping[str, Work]:
        # Workers seek where their group is when a transaction is aborted, and the leader may be gone whom they asked for the beginning.
        commit_beginnings(job.kafka, GROUP, TOPIC, Produce.topics[TOPIC], QUICK)
        names = [f"worker-{index}" for index in range(_WORKERS)]
        workers = {name: Worker(job, name).run for name in names}
        return {**workers, "outputs": Reader(job, OUTPUT, self.topics[OUTPUT], "outputs").run}


class Worker:
    def __init__(self, job: Job, name: str) -> None:
        self._job = job
        self._name = name
        self._chance = job.chance(name)
        self._transaction_count = 0
        self._consumer = self._connect_consumer()
        self._producer: Any = None
        self._hung: list[str] = []
        self._is_moved = False  # the assignment has changed in the last call

    def run(self) -> None:
        drain = Drain(self._job, self._name, left_of_group(self._job, GROUP, Produce.topics))
        while not drain.is_over:
            try:
                if self._producer is None:
                    self._producer = self._connect_producer()
                    # Only now: the last transaction of the one before is decided, and positions with it.
                    self._rewind()
                self._step()
            except confluent.KafkaException as error:
                self._told(Op.POLL, Phase.UNKNOWN, note=failure_text(error))
                self._producer = None
            except Hung as error:
                self._hung.append(str(error))
                self._told(Op.POLL, Phase.UNKNOWN, note=str(error))
                self._producer = None
                self._consumer = self._connect_consumer()  # the old one is used by the call that hangs
        self._tell_last()
        if self._hung:
            raise Hung(f"{len(self._hung)} calls did not return: {', '.join(self._hung[:3])}")

    def _gather(self) -> tuple[list[Any], Any]:
        """Records, and as whom we read them. What was read before a rebalance is given back: another may have it."""
        messages: list[Any] = []
        identity = self._consumer.consumer_group_metadata()
        ends_at = time.monotonic() + _GATHER_S
        while len(messages) < _BATCH and (left_s := ends_at - time.monotonic()) > 0:
            message = self._consumer.poll(left_s)
            if self._is_moved:  # and what came with the same call is of the new assignment
                self._is_moved, messages = False, []
                identity = self._consumer.consumer_group_metadata()
            if message is not None and message.error() is None:
                messages.append(message)
        return messages, identity

    def _moved(self, _: Any, __: list[Any]) -> None:
        self._is_moved = True

    def _step(self) -> None:
        messages, identity = self._gather()
        if not messages:
            return
        read = [Place(one.partition(), one.offset(), one.value().decode()) for one in messages]
        self._job.recorder.record(self._name, Op.POLL, Phase.OK, topic=TOPIC, group=GROUP, places=read)
        self._transaction_count += 1
        name = f"{self._name}-{self._transaction_count}"
        ends = {one.partition(): one.offset() + 1 for one in messages}
        outputs = [(one.partition(), output_of(one.value().decode(), name)) for one in messages]
        number = self._job.recorder.invoke(
            self._name,
            Op.TRANSACT,
            topic=OUTPUT,
            group=GROUP,
            places=[Place(partition, offset) for partition, offset in ends.items()],
            values=[value for _, value in outputs],
            note=TOPIC,
        )
        phase = Phase.UNKNOWN
        note = ""
        try:
            phase, note = self._transact(outputs, ends, identity)
        except confluent.KafkaException as error:
            note = failure_text(error)
            raise
        finally:
            self._told(Op.TRANSACT, phase, number=number, note=note)
        if phase is not Phase.OK:
            self._rewind()

    def _transact(
        self, outputs: Sequence[tuple[int, str]], ends: Mapping[int, int], identity: Any
    ) -> tuple[Phase, str]:
        self._producer.begin_transaction()
        try:
            for partition, value in outputs:
                self._producer.produce(OUTPUT, value.encode(), partition=partition)
            offsets = [confluent.TopicPartition(TOPIC, at, offset) for at, offset in ends.items()]
            self._patiently(
                "send_offsets_to_transaction",
                lambda: self._producer.send_offsets_to_transaction(offsets, identity, _CALL_S),
            )
            if self._chance.random() >= _ABORT_RATE:
                self._patiently("commit_transaction", lambda: self._producer.commit_transaction(_CALL_S))
                return Phase.OK, ""
            note = "on purpose"
        except confluent.KafkaException as error:
            if error.args[0].fatal() or not error.args[0].txn_requires_abort():
                raise
            note = failure_text(error)
        self._patiently("abort_transaction", lambda: self._producer.abort_transaction(_CALL_S))
        return Phase.FAIL, note

    def _patiently(self, name: str, call: Callable[[], None]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                bounded(call, _CALL_S + _GRACE_S, name)
                return
            except confluent.KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _rewind(self) -> None:
        """To the positions of what has been committed, since none of it counts that came after."""
        try:
            for place in self._consumer.committed(self._consumer.assignment(), timeout=_CALL_S):
                if place.error is not None:
                    raise confluent.KafkaException(place.error)
                place.offset = max(place.offset, 0)
                self._consumer.seek(place)
        except confluent.KafkaException as error:
            self._told(Op.POLL, Phase.UNKNOWN, note=failure_text(error))
            close(self._consumer)
            self._consumer = self._connect_consumer()  # which begins where the group is

    def _tell_last(self) -> None:
        number = self._job.recorder.invoke(self._name, Op.COMMITTED, topic=TOPIC, group=GROUP)
        found = [Place(one.partition, max(0, one.offset)) for one in self._positions()]
        values = {"number": number, "group": GROUP, "places": found, "note": "last"}
        self._job.recorder.record(self._name, Op.COMMITTED, Phase.OK, topic=TOPIC, **values)

    def _positions(self) -> Sequence[Any]:
        """Asked again where it failed: the client does not do so by itself, and the coordinator may be on the move, back to where
        it was before the last fault."""
        places = [confluent.TopicPartition(TOPIC, at) for at in range(Produce.topics[TOPIC])]
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                answers: Sequence[Any] = self._consumer.committed(places, timeout=_CALL_S)
                failed = [one.error for one in answers if one.error is not None]
                if not failed:
                    return answers
                raise confluent.KafkaException(failed[0])
            except confluent.KafkaException as error:
                if time.monotonic() > deadline:
                    raise Hung(f"the positions of {GROUP} were not told: {failure_text(error)}") from error
                time.sleep(0.1)

    # ---------------------------------------------------------------- clients

    def _connect_consumer(self) -> Any:
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": self._job.kafka,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                **QUICK,
            }
        )
        consumer.subscribe([TOPIC], on_assign=self._moved, on_revoke=self._moved, on_lost=self._moved)
        return consumer

    def _connect_producer(self) -> Any:
        producer = confluent.Producer(
            {
                "bootstrap.servers": self._job.kafka,
                "transactional.id": self._name,
                "transaction.timeout.ms": 15_000,
                "request.timeout.ms": 5_000,
                **QUICK,
            }
        )
        self._producer = producer
        self._patiently("init_transactions", lambda: producer.init_transactions(_CALL_S))
        return producer

    def _told(self, op: Op, phase: Phase, **values: Any) -> None:
        self._job.recorder.record(self._name, op, phase, topic=OUTPUT, **values)
