"""Redrive: dead letters go back to where they came from, or elsewhere, each once.

A call looks through the partitions of a dead letter topic as they are when it begins, so that what fails again at once
is not sent back again by the same call. What it has decided is carried out though the caller has gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from goqueue.core.dead_letter import Origin, content_bytes, origin_of, redrive_count, sent_back
from goqueue.core.lease.events import Moving, Target
from goqueue.core.redrive import RedriveFilter, redrive, trim_redriven
from goqueue.model.dead_letter_headers import REDRIVES_MAX as REDRIVES_MAX
from goqueue.model.errors import (
    DataCorrupt,
    GoQueueError,
    InvalidRequest,
    MessageTooLarge,
    OffsetOutOfRange,
    TimedOut,
    TopicNotFound,
)
from goqueue.model.partitioner import partition_for_key
from goqueue.model.record import StoredRecord
from goqueue.node.clock import Clock
from goqueue.node.dead_letters.moves import Mover
from goqueue.node.dead_letters.originals import read_on
from goqueue.node.dead_letters.topics import SUFFIX, HomeOf
from goqueue.node.guard import Guard
from goqueue.node.partition import Partition
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.queue.ledgers import Ledgers
from goqueue.node.topic_table import OpenTopic, TopicTable

LIMIT_MAX: Final = 100_000
RATE_MAX: Final = 100_000
DURATION_S_MAX: Final = 3_600
_STEP: Final = 1_000  # messages between two looks at what has become of them
_DONE_WITHIN_S: Final = 30.0
_ERROR_COUNT_MAX: Final = 10


class RedriveRequest(Struct, frozen=True):
    topic: str  # of dead letters
    to: str | None = None  # instead of where each came from
    filter: RedriveFilter = RedriveFilter()
    limit: int = 1_000
    per_second: int | None = None
    partition: int | None = None  # of the dead letter topic; with `offset` a single message
    offset: int | None = None
    redrives_max: int = REDRIVES_MAX
    force: bool = False  # also what was sent back too often
    dry_run: bool = False


class RedriveResult(Struct, frozen=True):
    """With `dry_run`, what would be. `matched` is the sum of moved, pending, failed and parked."""

    dry_run: bool
    matched: int
    moved: int
    pending: int  # decided, and carried out as soon as their topic takes them
    failed: int  # stay where they are: they cannot go where they belong
    parked: int  # stay where they are: sent back too often already
    skipped: int  # stay where they are: no dead letters, or not those that were asked for
    remaining: int  # offsets that nothing was sent back from, whatever is there
    errors: list[str]  # why some failed, or why the call ended early


class Redrive:
    def __init__(
        self, ledgers: Ledgers, table: TopicTable, mover: Mover, guard: Guard, clock: Clock, home_of: HomeOf
    ) -> None:
        self._ledgers = ledgers
        self._table = table
        self._mover = mover
        self._guard = guard
        self._clock = clock
        self._home_of = home_of

    async def redrive(self, request: RedriveRequest) -> RedriveResult:
        """Back when everything has arrived. Raises where nothing was moved because it could not be. In a cluster it is of the
        partitions that this node leads."""
        if request.dry_run:
            self._guard.admit_read()
        else:
            self._guard.admit_write(1)
        source = self._table.get(request.topic)
        partitions = self._chosen(request, source)
        self._check(request)
        run = _Run(request)
        for partition in partitions:
            if run.is_full:
                break
            try:
                await self._redrive(partition, run)
            except GoQueueError as error:
                if not run.moved and not run.pending:
                    raise
                run.note(error)
                break
        if run.missing is not None and not run.moved and not run.pending:
            raise run.missing
        return run.result(sum(self._remaining(partition) for partition in partitions))

    # ---------------------------------------------------------------- checking

    def _chosen(self, request: RedriveRequest, source: OpenTopic) -> list[Partition]:
        if request.partition is None:
            if request.offset is not None:
                raise InvalidRequest(
                    f"offset {request.offset} needs a partition to be in", offset=request.offset
                )
            return [one for one in source.partitions if one.is_solo or one.leadership is not None]
        partition = source.partition(request.partition)
        partition.check_leads()
        log, offset = partition.log, request.offset
        if offset is not None and not log.log_start <= offset < partition.last_stable_offset:
            raise OffsetOutOfRange(offset, earliest=log.log_start, latest=partition.last_stable_offset)
        return [partition]

    def _check(self, request: RedriveRequest) -> None:
        _check_range("limit", request.limit, 1, LIMIT_MAX)
        _check_range("redrives_max", request.redrives_max, 1, 1_000)
        if request.per_second is not None:
            _check_range("per_second", request.per_second, 1, RATE_MAX)
            if request.limit / request.per_second > DURATION_S_MAX:
                raise InvalidRequest(
                    f"{request.limit} messages at {request.per_second} per second take longer than {DURATION_S_MAX} s; "
                    "ask for fewer, and again for the rest",
                    limit=request.limit,
                    per_second=request.per_second,
                )
        if request.to is not None:
            self._check_target(request.topic, request.to)

    def _check_target(self, topic: str, to: str) -> None:
        self._table.get(to)
        if to == topic:
            raise InvalidRequest(
                f"topic {topic!r} cannot be redriven into itself; name another in `to`, or leave it out",
                to=to,
            )
        names_it = [one.facts.name for one in self._table.all() if one.settings.dlq_topic == to]
        if to.endswith(SUFFIX) or names_it:
            raise InvalidRequest(
                f"topic {to!r} takes dead letters: what is redriven must go where somebody works on it", to=to
            )

    # ---------------------------------------------------------------- looking through

    async def _redrive(self, partition: Partition, run: _Run) -> None:
        end = partition.last_stable_offset
        await partition.settled(
            end, under=partition.leadership
        )  # an offset that is said to be redriven must never be another record's
        if run.request.dry_run:
            ledger = self._ledgers.known(partition.topic, partition.index)
        else:
            ledger = await self._opened(partition)
        offset = partition.log.log_start
        if run.request.offset is not None:
            offset, end = run.request.offset, min(end, run.request.offset + 1)
        while not run.is_full:
            offset = max(offset, partition.log.log_start)
            if ledger is not None:
                offset = ledger.state.redriven.first_outside(offset)
            if offset >= end:
                return
            try:
                records, offset = await read_on(partition, offset, end)
            except DataCorrupt as error:
                run.failed += min(error.end, end) - offset
                run.note(error)
                offset = error.end
                continue
            await self._handle(ledger, records, run)
            await asyncio.sleep(0)  # others want their turn, too

    async def _opened(self, partition: Partition) -> OwnedLedger:
        ledger = await self._ledgers.open(partition.topic, partition.index)
        await ledger.ready()
        ledger.carry_out(trim_redriven(ledger.state, partition.log.log_start).events)
        return ledger

    async def _handle(self, ledger: OwnedLedger | None, records: Sequence[StoredRecord], run: _Run) -> None:
        chosen: list[_Choice] = []
        for record in records:
            if ledger is not None and record.offset in ledger.state.redriven:
                continue
            choice = self._choose(record, run)
            if choice is None:
                continue
            if run.request.dry_run:
                run.moved += 1
            else:
                chosen.append(choice)
                if len(chosen) == run.step and ledger is not None:
                    await self._move(ledger, chosen, run)
                    chosen = []
            if run.is_full_with(len(chosen)):
                break
        if chosen and ledger is not None:
            await self._move(ledger, chosen, run)

    def _choose(self, record: StoredRecord, run: _Run) -> _Choice | None:
        """Where a record goes, if it does; counted in any case."""
        request = run.request
        origin = origin_of(record)
        if origin is None or not request.filter.matches(record, origin):
            run.skipped += 1
            return None
        if redrive_count(record) >= request.redrives_max and not request.force:
            run.parked += 1
            return None
        try:
            return _Choice(record.offset, self._target(record, origin, request))
        except GoQueueError as error:
            run.failed += 1
            run.note(error)
            return None

    def _target(self, record: StoredRecord, origin: Origin, request: RedriveRequest) -> Target:
        name = origin.topic if request.to is None else request.to
        if name == request.topic:
            raise InvalidRequest(
                f"offset {record.offset} says that it comes from {name!r} itself", topic=name
            )
        topic = self._table.get(name)
        size_bytes, bytes_max = content_bytes(sent_back(record)), topic.settings.max_message_bytes
        if size_bytes > bytes_max:
            raise MessageTooLarge(f"offset {record.offset}, for topic {name!r},", size_bytes, bytes_max)
        count = topic.partition_count
        if request.to is None and origin.partition < count:
            index = origin.partition
        elif record.key is None:
            index = record.offset % count
        else:
            index = partition_for_key(topic.settings.partitioner, record.key, count)
        return Target(name, index)

    # ---------------------------------------------------------------- moving

    async def _move(self, ledger: OwnedLedger, chosen: Sequence[_Choice], run: _Run) -> None:
        await run.until_turn()
        self._guard.admit_write(1)
        await ledger.ready()
        wanted: dict[Target, list[int]] = {}
        for offset, target in chosen:
            wanted.setdefault(self._home(target), []).append(offset)
        decision = redrive(ledger.state, wanted, self._clock.now_ms())
        ledger.carry_out(decision.events)
        moves = [event for event in decision.events if isinstance(event, Moving)]
        outcomes = [(self._mover.outcome(ledger, move.serial), len(move.letters)) for move in moves]
        self._mover.wake(ledger)
        run.pending += decision.reply
        try:
            async with asyncio.timeout(_DONE_WITHIN_S):
                for outcome, count in outcomes:
                    run.ended(count, await outcome)
        except TimeoutError:
            raise TimedOut(
                f"{run.pending} messages are on their way and will arrive when their topic takes them again"
            ) from None

    def _home(self, target: Target) -> Target:
        """At the moment of the decision: since it was chosen, the partition may have begun to go, or be no more."""
        topic, index = target
        count = self._table.partition_count(topic)
        return Target(topic, self._home_of(topic, index if count is None else index % count))

    def _remaining(self, partition: Partition) -> int:
        log = partition.log
        ledger = self._ledgers.known(partition.topic, partition.index)
        redriven = 0 if ledger is None else ledger.state.redriven.count_from(log.log_start)
        return partition.last_stable_offset - log.log_start - redriven


class _Choice(NamedTuple):
    offset: int
    target: Target


class _Run:
    """One call, and what has come of it."""

    def __init__(self, request: RedriveRequest) -> None:
        self.request = request
        self.moved = 0
        self.pending = 0
        self.failed = 0
        self.parked = 0
        self.skipped = 0
        self.missing: TopicNotFound | None = None
        self._errors: dict[str, None] = {}
        self._started_at = asyncio.get_running_loop().time()

    @property
    def step(self) -> int:
        rate = self.request.per_second
        return _STEP if rate is None else min(_STEP, max(1, rate // 10))

    @property
    def is_full(self) -> bool:
        return self.is_full_with(0)

    def is_full_with(self, chosen_count: int) -> bool:
        return self.moved + self.pending + chosen_count >= self.request.limit

    async def until_turn(self) -> None:
        """So that what has been moved keeps to the rate."""
        rate = self.request.per_second
        if rate is not None:
            due = self._started_at + (self.moved + self.pending) / rate
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))

    def ended(self, count: int, error: GoQueueError | None) -> None:
        """So many that were pending have arrived, or their topic was deleted meanwhile."""
        self.pending -= count
        if error is None:
            self.moved += count
        else:
            self.failed += count
            self.note(error)

    def note(self, error: GoQueueError) -> None:
        if isinstance(error, TopicNotFound) and self.missing is None:
            self.missing = error
        if len(self._errors) < _ERROR_COUNT_MAX:
            self._errors[error.sentence] = None

    def result(self, remaining: int) -> RedriveResult:
        return RedriveResult(
            dry_run=self.request.dry_run,
            matched=self.moved + self.pending + self.failed + self.parked,
            moved=self.moved,
            pending=self.pending,
            failed=self.failed,
            parked=self.parked,
            skipped=self.skipped,
            remaining=remaining,
            errors=list(self._errors),
        )


def _check_range(name: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise InvalidRequest(f"{name} is {number}; it must be {least} to {most}", **{name: number})
