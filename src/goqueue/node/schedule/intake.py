"""Takes the delayed records out of a batch: they go to the schedule, and the rest goes to the log as if compaction had
been there, with a gap where they were. So a producer's sequence holds, whoever asks for the delay and by what protocol.

The schedule has them, durably, before the rest is appended. Of an idempotent producer it also remembers which batch they
came from: when that comes again, because of a crash or a lost answer, the same records are left out and none is scheduled
twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from goqueue.core.schedule.events import Message, TakenBatch
from goqueue.log.batch import NO_PRODUCER, BatchHeader, decode_rows, read_header, rebuild_batch
from goqueue.log.records import Row
from goqueue.model.delay import check_due, due_ms_in
from goqueue.model.errors import InvalidDelay
from goqueue.model.priority import NORMAL, PRIORITY_HEADER, lane_of
from goqueue.model.record import Header, NewRecord, Producer
from goqueue.node.clock import Clock
from goqueue.node.partition import Partition
from goqueue.node.schedule.scheduler import Scheduler
from goqueue.node.schedule.shard import OwnedSchedule


class Later(NamedTuple):
    """A record that waits: its id in the schedule, and until when."""

    id: int
    due_ms: int


class Divided(NamedTuple):
    """What is left of a batch for the log, and what became of the rest, by position in the batch."""

    header: BatchHeader
    batch: bytes
    later: Mapping[int, Later] = {}


class Intake:
    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock

    async def divide(
        self, partition: Partition, header: BatchHeader, batch: bytes, delay_ms_max: int
    ) -> Divided:
        """Of a batch that may have delayed records. Batches for one partition take turns."""
        rows = decode_rows(batch, header)
        delayed = self._delayed(rows, delay_ms_max)
        if header.is_transactional:
            if delayed:
                raise InvalidDelay(
                    "a batch of a transaction has records with gq-deliver-at in the future; a delayed message cannot be "
                    "part of a transaction",
                    producer_id=header.producer_id,
                )
            return Divided(header, batch)  # without an await: a marker must not come in between
        is_stored = partition.find(header) is not None
        schedule = await self._scheduler.find(partition, makes=bool(delayed) and not is_stored)
        if schedule is None:
            return Divided(header, batch)
        await schedule.log.lead()
        producer = _producer(header)
        taken = None
        if producer is not None:
            taken = schedule.state.find_taken(producer, header.last_offset_delta + 1)
        if taken is not None:
            later = await self._taken_before(schedule, taken, rows)
        elif delayed and not is_stored:
            self._scheduler.check_takes(partition)
            later = self._take(schedule, header, producer, delayed)
        else:
            return Divided(header, batch)
        await schedule.log.settled()
        if is_stored:
            return Divided(header, batch, later)
        rest = rebuild_batch(header, [row for row in rows if row[0] not in later], delete_horizon_ms=None)
        return Divided(read_header(rest), rest, later)

    def _delayed(self, rows: list[Row], delay_ms_max: int) -> dict[int, Message]:
        now_ms = self._clock.now_ms()
        delayed: dict[int, Message] = {}
        for position, _, key, value, headers in rows:
            due_ms = due_ms_in(headers)
            if due_ms is not None and check_due(due_ms, now_ms=now_ms, delay_ms_max=delay_ms_max):
                delayed[position] = Message(due_ms, lane_in(headers), NewRecord(key, value, headers))
        return delayed

    def _take(
        self,
        schedule: OwnedSchedule,
        header: BatchHeader,
        producer: Producer | None,
        delayed: Mapping[int, Message],
    ) -> dict[int, Later]:
        schedule.state.admit(len(delayed))
        first_id = schedule.log.end
        events = (
            schedule.state.take_from(
                producer, header.last_offset_delta + 1, first_id=first_id, positions=list(delayed)
            )
            if producer is not None
            else []
        )
        schedule.add_together(list(delayed.values()), events)
        self._scheduler.note(schedule, len(delayed))
        return {
            position: Later(first_id + at, message.due_ms)
            for at, (position, message) in enumerate(delayed.items())
        }

    async def _taken_before(
        self, schedule: OwnedSchedule, taken: TakenBatch, rows: list[Row]
    ) -> dict[int, Later]:
        """Where the log of the schedule has let go of a record, its header says when it was due."""
        ids = {position: taken.first_id + at for at, position in enumerate(taken.positions)}
        known = await schedule.log.read(ids.values())
        headers = {row[0]: row[4] for row in rows}  # of a batch with gaps, too
        later: dict[int, Later] = {}
        for position, id in ids.items():
            message = known.get(id)
            due_ms = message.due_ms if message is not None else due_ms_in(headers.get(position, ()))
            later[position] = Later(id, due_ms or 0)
        return later


def lane_in(headers: tuple[Header, ...]) -> int:
    for name, value in headers:
        if name == PRIORITY_HEADER:
            return lane_of(value)
    return NORMAL


def _producer(header: BatchHeader) -> Producer | None:
    if header.producer_id == NO_PRODUCER:
        return None
    return Producer(header.producer_id, header.producer_epoch, header.base_sequence)
