"""The publish use case: partition once, build one batch per partition, append, wait as `acks` says.

`append_batch` is the path that every protocol shares; records that arrive one by one (REST, gRPC) are made
into batches here first, batches that arrive whole (Kafka) go straight to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from goqueue.core.producer import BATCH_COUNT_KEPT, last_sequence
from goqueue.core.schedule.events import Message
from goqueue.log.batch import (
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    BatchHeader,
    encode_batch,
    validate_and_open,
)
from goqueue.log.compression import CODEC_OF_SETTING, Codec
from goqueue.log.records import contains
from goqueue.model.acks import Acks
from goqueue.model.cluster_errors import NotLeader, ReplicationUnknown
from goqueue.model.delay import DELIVER_AT_MARK, check_due, due_ms_in
from goqueue.model.errors import (
    GoQueueError,
    InvalidRequest,
    InvariantViolation,
    MessageTooLarge,
    RequestTooLarge,
)
from goqueue.model.limits import Limits
from goqueue.model.partitioner import partition_for_key
from goqueue.model.record import NewRecord, Producer
from goqueue.model.settings import TimestampType, TopicSettings
from goqueue.node.batch_checks import as_the_topic_wants, check_replicas
from goqueue.node.clock import Clock
from goqueue.node.guard import Guard
from goqueue.node.metrics import Metrics
from goqueue.node.partition import Partition, Stored
from goqueue.node.requests import NewMessage, Outcome
from goqueue.node.schedule.intake import Divided, Intake, lane_in
from goqueue.node.schedule.scheduler import Scheduler
from goqueue.node.topic_table import OpenTopic, TopicTable

_RECORD_OVERHEAD_BYTES = 32  # more than the varints and the attributes byte of any record
_HEADER_OVERHEAD_BYTES = 10  # two lengths of up to five bytes
_BATCH_OVERHEAD_BYTES = 64


class Transaction(NamedTuple):
    """What a batch says about the transaction it is part of."""

    id: str
    may_join: bool  # the partition becomes part of it with this batch (KIP-890); else it must have been added before


class Fresh(NamedTuple):
    """A batch that may be appended. Where it may have delayed records, there is a limit to the delay."""

    header: BatchHeader
    batch: bytes
    delay_ms_max: int | None = None
    transaction: Transaction | None = None


class Placed(NamedTuple):
    """A batch of a client in its partition."""

    partition: Partition
    stored: Stored
    record_count: int
    append_ms: int | None  # the time its records got, where the topic gives them one


class Verify(Protocol):
    async def verify_for_write(
        self,
        transactional_id: str | None,
        producer_id: int,
        epoch: int,
        topic: str,
        partition: int,
        *,
        may_add: bool,
    ) -> None:
        """Raise unless the producer has a transaction under way that the partition is part of, or may become."""


class Publisher:
    def __init__(
        self,
        topics: TopicTable,
        guard: Guard,
        metrics: Metrics,
        clock: Clock,
        transactions: Verify,
        scheduler: Scheduler,
    ) -> None:
        self._topics = topics
        self._transactions = transactions
        self._guard = guard
        self._metrics = metrics
        self._clock = clock
        self._scheduler = scheduler
        self._intake = Intake(scheduler, clock)
        # Of partitions to which a batch with delayed records is on its way: what comes after it must not overtake it.
        self._turns: WeakValueDictionary[Partition, asyncio.Lock] = WeakValueDictionary()

    async def publish(
        self, topic: str, messages: Sequence[NewMessage], *, acks: Acks, producer: Producer | None = None
    ) -> list[Outcome]:
        """Store messages; an outcome for each, in order. Raises where the request as a whole is refused."""
        try:
            outcomes = await self._publish(topic, messages, acks, producer)
        except GoQueueError as error:
            self._metrics.refused_messages.labels(error.code.value).inc(len(messages))
            raise
        return self._counted(outcomes)

    async def _publish(
        self, topic: str, messages: Sequence[NewMessage], acks: Acks, producer: Producer | None
    ) -> list[Outcome | None]:
        self._guard.admit_write(len(messages))
        target = self._topics.get(topic)
        if acks is Acks.ALL:
            for partition in target.partitions[:1]:
                if partition.is_solo:
                    check_replicas(partition, target.settings)
        outcomes: list[Outcome | None] = [None] * len(messages)
        due_ms: dict[int, int] = {}  # of messages that have to wait, by their place in the request
        groups = self._grouped(target, messages, outcomes, due_ms)
        if producer is not None and (len(groups) != 1 or any(outcomes)):
            raise _not_idempotent(groups, outcomes)
        waiting: list[tuple[Partition, int, list[int]]] = []
        for index, positions in groups.items():
            try:
                partition = target.partition(index)
                if acks is Acks.ALL:
                    check_replicas(partition, target.settings)
            except GoQueueError as error:
                for at in positions:
                    outcomes[at] = Outcome(index, None, error)
                continue
            if due_ms and producer is None:
                await self._schedule(partition, messages, positions, due_ms, outcomes)
                positions = [at for at in positions if at not in due_ms]
                if not positions:
                    continue
            records = [messages[at].record for at in positions]
            end = await self._store(partition, target.settings, records, positions, producer, outcomes)
            if end is not None:
                waiting.append((partition, end, [at for at in positions if at not in due_ms]))
        if acks is Acks.ALL:
            await self._until_durable(waiting, outcomes)
        return outcomes

    def placed(self, topic: str, messages: Sequence[NewMessage]) -> list[NewMessage]:
        """The messages with the partitions that they belong to, for whoever sends them to the leaders of those."""
        self._guard.admit_write(len(messages))
        target = self._topics.get(topic)
        partitioner, count = target.settings.partitioner, target.partition_count
        keyless: int | None = None
        found: list[NewMessage] = []
        for message in messages:
            if message.partition is not None:
                found.append(message)
                continue
            key = message.record.key
            if key is None and keyless is None:
                keyless = target.next_keyless()
            index = keyless if key is None else partition_for_key(partitioner, key, count)
            found.append(NewMessage(message.record, index))
        return found

    async def append_batch(
        self, topic: str, index: int, batch: bytes, *, acks: Acks, transaction: Transaction | None = None
    ) -> Placed:
        """Validate and append a batch as a client built it. It may be read; `until_stored` says when it is durable."""
        try:
            placed = await self._append_batch(topic, index, batch, acks, transaction)
        except GoQueueError as error:
            self._metrics.refused_messages.labels(error.code.value).inc()
            raise
        self._metrics.published_messages.inc(placed.record_count)
        return placed

    async def _append_batch(
        self, topic: str, index: int, batch: bytes, acks: Acks, transaction: Transaction | None
    ) -> Placed:
        self._guard.admit_write(1)
        target = self._topics.get(topic)
        partition = target.partition(index)
        settings = target.settings
        if acks is Acks.ALL:
            check_replicas(partition, settings)
        header, payload = validate_and_open(batch, settings.max_message_bytes)
        may_delay = contains(payload, DELIVER_AT_MARK)
        now_ms = self._clock.now_ms()
        header, batch = as_the_topic_wants(header, batch, settings, now_ms)
        fresh = Fresh(header, batch, settings.delay_max_ms if may_delay else None, transaction)
        stored, _ = await self._append_in_turn(partition, fresh)
        is_stamped = settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        return Placed(partition, stored, header.record_count, now_ms if is_stamped else None)

    async def _verify(
        self, partition: Partition, header: BatchHeader, transaction: Transaction | None
    ) -> None:
        """The first batch of a transaction in a partition: a late one of a transaction that has ended would open it
        again and hold up every reader (KIP-890)."""
        if partition.has_open_transaction(header.producer_id, header.producer_epoch):
            return
        await self._transactions.verify_for_write(
            transaction.id if transaction else None,
            header.producer_id,
            header.producer_epoch,
            partition.topic,
            partition.index,
            may_add=transaction is not None and transaction.may_join,
        )

    async def until_stored(self, placed: Placed) -> None:
        """Until the batch is on disk; raises where that is not known to be so."""
        await placed.partition.settled(placed.stored.end)

    async def _append_in_turn(self, partition: Partition, fresh: Fresh) -> tuple[Stored, Divided | None]:
        """At once, unless records of the batch have to go to the schedule first, or those of one before it."""
        turn = self._turns.get(partition)
        if turn is None:
            if fresh.delay_ms_max is None:
                return await self._append_now(partition, fresh)
            turn = self._turns[partition] = asyncio.Lock()
        async with turn:
            return await self._append_now(partition, fresh)

    async def _append_now(self, partition: Partition, fresh: Fresh) -> tuple[Stored, Divided | None]:
        header, batch, delay_ms_max, transaction = fresh
        if not partition.is_led:
            await partition.lead()
        if header.attributes & ATTRIBUTE_TRANSACTIONAL:
            await self._verify(partition, header, transaction)
        if delay_ms_max is None:
            return self._append(partition, batch, header), None
        divided = await self._intake.divide(partition, header, batch, delay_ms_max)
        return self._append(partition, divided.batch, divided.header), divided

    def _append(self, partition: Partition, batch: bytes, header: BatchHeader) -> Stored:
        stored = partition.append(batch, header, now_ms=self._clock.now_ms())
        if not stored.is_duplicate:
            self._metrics.published_bytes.inc(len(batch))
        return stored

    def _grouped(
        self,
        target: OpenTopic,
        messages: Sequence[NewMessage],
        outcomes: list[Outcome | None],
        due_ms: dict[int, int],
    ) -> dict[int, list[int]]:
        """Partition to positions in the request. Each message is assigned once, here, and nowhere else."""
        groups: dict[int, list[int]] = {}
        count = target.partition_count
        partitioner = target.settings.partitioner
        bytes_max = target.settings.max_message_bytes - _BATCH_OVERHEAD_BYTES
        limits = self._guard.limits
        keyless: int | None = None
        for at, message in enumerate(messages):
            record = message.record
            index = message.partition
            try:
                _check_size(record, bytes_max, limits)
                if index is not None:
                    target.check_partition(index)
                if record.headers:
                    self._note_delay(at, record, target.settings, due_ms)
            except GoQueueError as error:
                outcomes[at] = Outcome(index, None, error)
                continue
            if index is None:
                if record.key is not None:
                    index = partition_for_key(partitioner, record.key, count)
                else:
                    if keyless is None:
                        keyless = target.next_keyless()
                    index = keyless
            positions = groups.get(index)
            if positions is None:
                groups[index] = [at]
            else:
                positions.append(at)
        return groups

    def _note_delay(
        self, at: int, record: NewRecord, settings: TopicSettings, due_ms: dict[int, int]
    ) -> None:
        at_ms = due_ms_in(record.headers)
        now_ms = self._clock.now_ms()
        if at_ms is not None and check_due(at_ms, now_ms=now_ms, delay_ms_max=settings.delay_max_ms):
            due_ms[at] = at_ms

    async def _schedule(
        self,
        partition: Partition,
        messages: Sequence[NewMessage],
        positions: list[int],
        due_ms: dict[int, int],
        outcomes: list[Outcome | None],
    ) -> None:
        """Those of the messages that have to wait."""
        places = [at for at in positions if at in due_ms]
        delayed = [
            Message(due_ms[at], lane_in(messages[at].record.headers), messages[at].record) for at in places
        ]
        try:
            found = await self._scheduler.schedule(partition.topic, partition.index, delayed)
        except GoQueueError as error:
            found = [error for _ in places]
        for at, one in zip(places, found, strict=True):
            if isinstance(one, GoQueueError):
                outcomes[at] = Outcome(partition.index, None, one)
            else:
                outcomes[at] = Outcome(partition.index, one, deliver_at_ms=due_ms[at])

    async def _store(
        self,
        partition: Partition,
        settings: TopicSettings,
        records: list[NewRecord],
        positions: list[int],
        producer: Producer | None,
        outcomes: list[Outcome | None],
    ) -> int | None:
        """Append the records in as few batches as fit; the offset that must be durable, if anything was stored."""
        end: int | None = None
        codec = CODEC_OF_SETTING.get(settings.compression_type, Codec.NONE)
        is_stamped = settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        attributes = ATTRIBUTE_LOG_APPEND_TIME if is_stamped else 0
        first = 0
        bytes_max = settings.max_message_bytes - _BATCH_OVERHEAD_BYTES
        chunks = _chunks(records, bytes_max) if len(records) > 1 else [records]
        if producer is not None and len(chunks) > BATCH_COUNT_KEPT:
            raise _not_repeatable(len(chunks), settings.max_message_bytes)
        for chunk in chunks:
            places = positions[first : first + len(chunk)]
            sender = _sender(producer, first) if producer else None
            first += len(chunk)
            now_ms = self._clock.now_ms()
            header, batch = encode_batch(chunk, now_ms, producer=sender, codec=codec, attributes=attributes)
            may_delay = sender is not None and any(due_ms_in(record.headers) is not None for record in chunk)
            fresh = Fresh(header, batch, settings.delay_max_ms if may_delay else None)
            try:
                stored, divided = await self._append_in_turn(partition, fresh)
            except GoQueueError as error:
                for at in places:
                    outcomes[at] = Outcome(partition.index, None, error)
                continue
            later = divided.later if divided is not None else {}
            for position, at in enumerate(places):
                if position in later:
                    id, due_ms = later[position]
                    outcomes[at] = Outcome(partition.index, id, deliver_at_ms=due_ms)
                else:
                    outcomes[at] = Outcome(partition.index, stored.base_offset + position)
            end = max(end or 0, stored.end)
        return end

    async def _until_durable(
        self, waiting: list[tuple[Partition, int, list[int]]], outcomes: list[Outcome | None]
    ) -> None:
        for partition, _, _ in waiting:
            partition.commit.request()  # all disks work at once, then each is waited for
        since = asyncio.get_running_loop().time()
        for partition, end, positions in waiting:
            try:
                await partition.settled(end, since=since)
            except NotLeader as error:  # but it was appended, and may come to be committed
                unknown = ReplicationUnknown(f"{error.sentence}; whether the message is stored is not known")
                for at in positions:
                    outcomes[at] = Outcome(partition.index, None, unknown)
            except GoQueueError as error:
                for at in positions:
                    outcomes[at] = Outcome(partition.index, None, error)

    def _counted(self, outcomes: list[Outcome | None]) -> list[Outcome]:
        done: list[Outcome] = []
        refused_count = 0
        for outcome in outcomes:
            if outcome is None:
                raise InvariantViolation("a message was neither stored nor refused")
            if outcome.error is not None:
                refused_count += 1
                self._metrics.refused_messages.labels(outcome.error.code.value).inc()
            done.append(outcome)
        self._metrics.published_messages.inc(len(done) - refused_count)
        return done


def check_record(record: NewRecord, settings: TopicSettings, limits: Limits) -> None:
    """Raise where a topic would not take it from a publisher."""
    _check_size(record, settings.max_message_bytes - _BATCH_OVERHEAD_BYTES, limits)


def _check_size(record: NewRecord, bytes_max: int, limits: Limits) -> None:
    key, value = record.key, record.value
    size = _RECORD_OVERHEAD_BYTES + (len(value) if value is not None else 0)
    if key is not None:
        size += len(key)
        if len(key) > limits.key_bytes_max:
            raise MessageTooLarge("the key", len(key), limits.key_bytes_max)
    if record.headers:
        header_bytes = _header_bytes(record)
        size += header_bytes + _HEADER_OVERHEAD_BYTES * len(record.headers)
        if len(record.headers) > limits.header_count_max:
            raise InvalidRequest(
                f"a message has at most {limits.header_count_max} headers, not {len(record.headers)}",
                header_count=len(record.headers),
            )
        if header_bytes > limits.header_bytes_max:
            raise MessageTooLarge("the headers together", header_bytes, limits.header_bytes_max)
    if size > bytes_max:
        raise MessageTooLarge("the message", size, bytes_max)


def _header_bytes(record: NewRecord) -> int:
    return sum(
        (len(name) if name.isascii() else len(name.encode())) + len(content or b"")
        for name, content in record.headers
    )


def _sender(producer: Producer, first: int) -> Producer:
    """The producer as of its record number `first` of this request."""
    return Producer(producer.id, producer.epoch, last_sequence(producer.sequence, first + 1))


def _chunks(records: list[NewRecord], bytes_max: int) -> list[list[NewRecord]]:
    """Runs of records that fit a batch; each record alone does, as was checked."""
    chunks: list[list[NewRecord]] = []
    start, size = 0, 0
    for at, record in enumerate(records):
        more = _RECORD_OVERHEAD_BYTES + len(record.value or b"") + len(record.key or b"")
        if record.headers:
            more += _header_bytes(record) + _HEADER_OVERHEAD_BYTES * len(record.headers)
        if size + more > bytes_max and at > start:
            chunks.append(records[start:at])
            start, size = at, 0
        size += more
    chunks.append(records[start:])
    return chunks


def _not_repeatable(batch_count: int, bytes_max: int) -> GoQueueError:
    """Only so many batches of a producer are remembered: more could be stored but not be recognised when sent again."""
    return RequestTooLarge(
        f"messages with producer_id, epoch and sequence must fit {BATCH_COUNT_KEPT} batches of max.message.bytes "
        f"({bytes_max}); these make {batch_count}; send fewer at once",
        batch_count=batch_count,
        batch_count_max=BATCH_COUNT_KEPT,
    )


def _not_idempotent(groups: dict[int, list[int]], outcomes: list[Outcome | None]) -> GoQueueError:
    for outcome in outcomes:
        if outcome is not None and outcome.error is not None:
            return outcome.error
    return InvalidRequest(
        "messages with producer_id, epoch and sequence must all go to one partition, because sequences are counted "
        f"per partition; these go to partitions {sorted(groups)}; give each message its partition",
        partitions=sorted(groups),
    )
