"""Carries out what ledgers have decided to move: to the dead letters, or back from there. Each record arrives once.

The decision is durable first. Then the records are appended to their target under the id of the ledger's own producer,
with the sequence that the decision gave them; the partition's table of producers says how many of them it has, so an
attempt after a crash goes on with the next, whoever leads the ledger or the target by then. Nothing but the end of the
node, or of its leadership, stops the attempts.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from goqueue.core.dead_letter import content_bytes, dead_letter, sent_back
from goqueue.core.lease.events import REDRIVEN, Letter, Moved, Moving, ProducerNamed, Target, Withdrawn
from goqueue.core.producer import next_sequence
from goqueue.log.batch import ATTRIBUTE_LOG_APPEND_TIME, decode_rows, encode_batch, read_header, rebuild_batch
from goqueue.log.compression import CODEC_OF_SETTING, Codec
from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import (
    GoQueueError,
    InvalidPartitions,
    NotReady,
    PartitionNotFound,
    TopicExists,
    TopicNotFound,
)
from goqueue.model.record import NewRecord, Producer
from goqueue.model.settings import TimestampType, TopicSettings
from goqueue.node.clock import Clock
from goqueue.node.commit import Spawn
from goqueue.node.dead_letters.arrivals import Destination, Destinations
from goqueue.node.dead_letters.metrics import MoveMetrics
from goqueue.node.dead_letters.originals import Originals
from goqueue.node.dead_letters.topics import dead_letter_settings
from goqueue.node.guard import Guard
from goqueue.node.partition import Partition
from goqueue.node.producers import Producers
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.topic_table import OpenTopic, TopicTable
from goqueue.node.topics import ANYWHERE, Placement, Topics

logger = logging.getLogger(__name__)
_PAUSE_S_MIN: Final = 0.1
_PAUSE_S_MAX: Final = 10.0
_BATCH_BYTES_MAX: Final = 1024 * 1024
_RECORD_OVERHEAD_BYTES: Final = 32  # more than the varints and the attributes byte of any record
_HEADER_OVERHEAD_BYTES: Final = 10  # two lengths of up to five bytes
_SEQUENCES_HALF: Final = 2**30
_HOLE: Final = NewRecord(None, None)  # keeps the place of a record that is not there any more

_Way = tuple[OwnedLedger, Target]


class Mover:
    """One task for each way from a ledger to a target, as long as there is something to move."""

    def __init__(
        self,
        topics: Topics,
        table: TopicTable,
        producers: Producers,
        destinations: Destinations,
        guard: Guard,
        metrics: MoveMetrics,
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        self._topics = topics
        self._table = table
        self._producers = producers
        self._destinations = destinations
        self._guard = guard
        self._metrics = metrics
        self._clock = clock
        self._spawn = spawn
        self._busy: set[_Way] = set()
        self._naming = asyncio.Lock()
        self._waiting: dict[tuple[OwnedLedger, int], asyncio.Future[GoQueueError | None]] = {}

    def wake(self, ledger: OwnedLedger) -> None:
        """The ledger has moves that are not done."""
        for target in dict.fromkeys(move.target for move in ledger.state.moves.values()):
            if (ledger, target) not in self._busy:
                self._busy.add((ledger, target))
                self._spawn(self._run((ledger, target)))

    def outcome(self, ledger: OwnedLedger, serial: int) -> asyncio.Future[GoQueueError | None]:
        """Of an open move: None when it is durable, or why it never will be. Who waits says how long."""
        future = self._waiting[ledger, serial] = asyncio.get_running_loop().create_future()
        return future

    async def _run(self, way: _Way) -> None:
        ledger, target = way
        pause_s = _PAUSE_S_MIN
        try:
            while not _is_gone(ledger) and (move := _first(ledger, target)) is not None:
                try:
                    await self._carry_out(ledger, move)
                    pause_s = _PAUSE_S_MIN
                    continue
                except NotReady:
                    pass  # the node starts or stops
                except GoQueueError as error:
                    if _is_gone(ledger):
                        break
                    self._metrics.retries.inc()
                    logger.warning(
                        "records wait to be moved topic=%s partition=%d to=%s retry_s=%g error=%r",
                        *(ledger.source.topic, ledger.source.index, target.topic, pause_s, error.sentence),
                    )
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        finally:
            self._busy.discard(way)
        if _is_gone(ledger):
            source = ledger.source
            over = NotLeader(source.topic, source.index, source.leader)
            reason = TopicNotFound(source.topic) if source.is_deleted else over
            for serial in [serial for owner, serial in self._waiting if owner is ledger]:
                self._tell(ledger, serial, reason)

    async def _carry_out(self, ledger: OwnedLedger, move: Moving) -> None:
        self._guard.admit_write(1)
        await ledger.ready()
        topic = await self._target(ledger, move)
        if topic is None:
            ledger.carry_out([Withdrawn(move.serial)])
            await ledger.settled()
            self._tell(ledger, move.serial, self._missing(move.target))
            return
        # Always this partition: sequences are those of the target.
        destination = self._destinations.find(topic, move.target.partition)
        await self._copy(ledger, move, destination, topic.settings)
        await destination.settled()
        # If this is lost, the next start finds all of it in the partition.
        ledger.carry_out([Moved(move.serial)])
        await ledger.trim()
        self._metrics.moved.labels(move.cause).inc(len(move.letters))
        self._tell(ledger, move.serial, None)

    def _tell(self, ledger: OwnedLedger, serial: int, error: GoQueueError | None) -> None:
        future = self._waiting.pop((ledger, serial), None)
        if future is not None and not future.done():
            future.set_result(error)

    # ---------------------------------------------------------------- where to

    async def _target(self, ledger: OwnedLedger, move: Moving) -> OpenTopic | None:
        """A topic for dead letters is made if need be, and its partition. None: there is none to send records back to any
        more."""
        name, index = move.target
        count = self._table.partition_count(name)
        if count is not None and index < count:
            return self._table.get(name)
        if move.cause == REDRIVEN:
            self._refuse_if_closed(move.target)
            return None
        source = self._table.get(ledger.source.topic)
        try:
            if count is None:
                await self._topics.create(
                    name,
                    partition_count=source.partition_count,
                    overrides=dead_letter_settings(source.settings),
                    placement=self._placement(source),
                )
            else:  # since this was decided, it was made for a topic that has fewer
                await self._topics.grow(name, source.partition_count)
        except (TopicExists, InvalidPartitions):
            pass  # somebody else was faster; or it cannot be opened, which is said where it is looked for
        return self._table.get(name)

    def _placement(self, source: OpenTopic) -> Placement:
        """As many replicas as the source has."""
        if self._destinations.are_all_here:
            return ANYWHERE
        return Placement(replication_factor=max(len(state.replicas) for state in source.states))

    def _refuse_if_closed(self, target: Target) -> None:
        """What exists and could not be opened may have the records already."""
        try:
            if self._table.partition_count(target.topic) is None:
                self._topics.check_create(target.topic, partition_count=1, overrides={})
            else:
                self._topics.check_grow(target.topic, target.partition + 1)
        except (TopicExists, InvalidPartitions):
            raise self._missing(target) from None

    def _missing(self, target: Target) -> GoQueueError:
        count = self._table.partition_count(target.topic)
        return TopicNotFound(target.topic) if count is None else PartitionNotFound(*target, count)

    # ---------------------------------------------------------------- copying

    async def _copy(
        self, ledger: OwnedLedger, move: Moving, destination: Destination, settings: TopicSettings
    ) -> None:
        """What the partition does not have yet, in batches that are not too large."""
        producer = await self._named(ledger, None)
        await ledger.settled()  # nothing comes of a decision that a power cut could take back
        done_count = _stored_count(await destination.newest_sequence(producer), move)
        if done_count is None:
            logger.error("moved records are gone from their topic topic=%s partition=%d", *move.target)
            producer = await self._named(ledger, producer)
            await ledger.settled()
            done_count = 0
        originals = Originals(ledger.source)
        bytes_max = min(_BATCH_BYTES_MAX, settings.max_message_bytes)
        records: list[NewRecord] = []
        size_bytes = 0
        for letter in move.letters[done_count:]:
            record = await self._written(ledger.source, originals, letter, move)
            more_bytes = _size(record)
            if records and size_bytes + more_bytes > bytes_max:
                await self._append(destination, settings, records, _sender(producer, move, done_count))
                done_count += len(records)
                records, size_bytes = [], 0
            records.append(record)
            size_bytes += more_bytes
        if records:
            await self._append(destination, settings, records, _sender(producer, move, done_count))

    async def _written(
        self, source: Partition, originals: Originals, letter: Letter, move: Moving
    ) -> NewRecord:
        record = await originals.get(letter.offset)
        if move.cause != REDRIVEN:
            return dead_letter(source.topic, source.index, record, letter, move)
        return _HOLE if record is None else sent_back(record)

    async def _append(
        self, destination: Destination, settings: TopicSettings, records: list[NewRecord], sender: Producer
    ) -> None:
        now_ms = self._clock.now_ms()
        is_stamped = settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        header, batch = encode_batch(
            records,
            now_ms,
            producer=sender,
            codec=CODEC_OF_SETTING.get(settings.compression_type, Codec.NONE),
            attributes=ATTRIBUTE_LOG_APPEND_TIME if is_stamped else 0,
        )
        if _HOLE in records:
            rows = [row for row in decode_rows(batch, header) if records[row[0]] is not _HOLE]
            batch = rebuild_batch(header, rows, delete_horizon_ms=None)
            header = read_header(batch)
        await destination.append(batch, header)

    async def _named(self, ledger: OwnedLedger, before: tuple[int, int] | None) -> tuple[int, int]:
        """The ledger's producer; another one than `before`, which the target does not believe any more."""
        async with self._naming:
            producer = ledger.state.producer
            if producer is None or producer == before:
                producer = await self._producers.init()
                ledger.carry_out([ProducerNamed(*producer)])
        return producer


def _first(ledger: OwnedLedger, target: Target) -> Moving | None:
    return next((move for move in ledger.state.moves.values() if move.target == target), None)


def _is_gone(ledger: OwnedLedger) -> bool:
    """Its topic is deleted, or another node leads it and moves what is left."""
    return ledger.source.is_deleted or ledger.tenure.is_over


def _stored_count(newest: int | None, move: Moving) -> int | None:
    """How many records of a move are in its target, by the newest sequence there. None: some from before it are missing
    there."""
    if newest is None:
        return 0
    count = next_sequence(newest, 1 - move.sequence)
    return min(count, len(move.letters)) if count <= _SEQUENCES_HALF else None


def _sender(producer: tuple[int, int], move: Moving, done_count: int) -> Producer:
    return Producer(*producer, next_sequence(move.sequence, done_count))


def _size(record: NewRecord) -> int:
    return content_bytes(record) + _RECORD_OVERHEAD_BYTES + _HEADER_OVERHEAD_BYTES * len(record.headers)
