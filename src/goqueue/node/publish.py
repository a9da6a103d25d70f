"""The publish use case: partition once, build one batch per partition, append, wait as `acks` says.

`append_batch` is the path that every protocol shares; records that arrive one by one (REST, gRPC) are made
into batches here first, batches that arrive whole (Kafka) go straight to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from goqueue.core.producer import BATCH_COUNT_KEPT, is_relayed, last_sequence
from goqueue.core.schedule.events import Message
from goqueue.log.batch import (
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    HEADER_BYTES,
    BatchHeader,
    encode_batch,
    validate_and_open,
)
from goqueue.log.compression import CODEC_OF_SETTING, Codec
from goqueue.log.records import contains
from goqueue.model.acks import Acks
from goqueue.model.cluster_errors import HomeUndecided, NotLeader, ReplicationUnknown
from goqueue.model.delay import DELIVER_AT_MARK, check_due, due_ms_in
from goqueue.model.errors import (
    GoQueueError,
    InvalidBatch,
    InvalidRequest,
    InvariantViolation,
    OutOfOrderSequence,
    RequestTooLarge,
)
from goqueue.model.record import NewRecord, Producer
from goqueue.model.settings import TimestampType, TopicSettings
from goqueue.node.batch_checks import as_the_topic_wants, check_replicas
from goqueue.node.clock import Clock
from goqueue.node.guard import Guard
from goqueue.node.message_sizes import BATCH_OVERHEAD_BYTES, check_size, chunks_of
from goqueue.node.metrics import Metrics
from goqueue.node.missing_batches import MissingBatches
from goqueue.node.partition import Partition, Stored
from goqueue.node.refused_batches import RefusedBatches, producer_of
from goqueue.node.requests import NewMessage, Outcome
from goqueue.node.scaling.division import Division, Kept
from goqueue.node.scaling.homes import Opened, Payload
from goqueue.node.scaling.placing import index_of, next_keyless
from goqueue.node.schedule.intake import Divided, Intake, lane_in
from goqueue.node.schedule.scheduler import Scheduler
from goqueue.node.topic_table import OpenTopic, TopicTable

_PATIENCE_S = 5.0  # while the partitions of a topic change
_PAUSE_S = 0.05


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
    payload: Payload | None = None  # if it has been opened


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
        division: Division,
    ) -> None:
        self._topics = topics
        self._division = division
        self._transactions = transactions
        self._guard = guard
        self._metrics = metrics
        self._clock = clock
        self._scheduler = scheduler
        self._intake = Intake(scheduler, clock)
        # Of partitions to which a batch with delayed records is on its way: what comes after it must not overtake it.
        self._turns: WeakValueDictionary[Partition, asyncio.Lock] = WeakValueDictionary()
        self._refused = RefusedBatches()
        self._missing = MissingBatches()

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
        if producer is not None and is_relayed(producer.id):
            raise _not_a_clients(producer.id)
        groups = self._grouped(target, messages, outcomes, due_ms, is_idempotent=producer is not None)
        if producer is not None and (len(groups) != 1 or any(outcomes)):
            raise _not_idempotent(groups, outcomes)
        waiting: list[tuple[Partition, Stored, list[int]]] = []
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
            waiting += [
                (partition, stored, [at for at in places if at not in due_ms])
                for stored, places in await self._store(
                    partition, target.settings, records, positions, producer, outcomes
                )
            ]
        if acks is Acks.ALL:
            await self._until_durable(waiting, outcomes)
        return outcomes

    def placed(
        self, topic: str, messages: Sequence[NewMessage], *, is_idempotent: bool = False
    ) -> list[NewMessage]:
        """The messages with the partitions that they belong to, for whoever sends them to the leaders of those. Who counts them
        per partition (`is_idempotent`) says which."""
        self._guard.admit_passing(len(messages))
        target = self._topics.get(topic)
        scaling = self._division.homes.scaling(topic)
        keyless: int | None = None
        found: list[NewMessage] = []
        for message in messages:
            key, index = message.record.key, message.partition
            if index is None and key is None:
                index = keyless = next_keyless(target, scaling) if keyless is None else keyless
            elif index is None or (scaling is not None and key is not None and not is_idempotent):
                index = index_of(target, scaling, key or b"", index)
            elif not is_idempotent:
                index = self._division.home_of(topic, index)
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
        try:
            placed = await self._append_opened(partition, target.settings, batch, acks, transaction)
        except OutOfOrderSequence as error:
            refusal = self._missing.refusal(partition, producer_of(batch), self._clock.now_ms())
            if refusal is None:
                raise
            self._division.refused(partition, batch)
            raise refusal from error
        except GoQueueError as error:
            if error.retriable and not isinstance(error, HomeUndecided):  # `Quiet` keeps the line of those
                self._refused.note(partition, batch, self._clock.now_ms())
                self._division.refused(partition, batch)
            raise
        if self._refused:
            self._refused.taken(partition, batch)
        return placed

    async def _append_opened(
        self,
        partition: Partition,
        settings: TopicSettings,
        batch: bytes,
        acks: Acks,
        transaction: Transaction | None,
    ) -> Placed:
        if acks is Acks.ALL:
            check_replicas(partition, settings)
        header, payload = validate_and_open(batch, settings.max_message_bytes)
        if is_relayed(header.producer_id):
            raise _not_a_clients(header.producer_id)
        now_ms = self._clock.now_ms()
        if self._refused:
            self._refused.check(partition, batch, now_ms)
        opened = payload, HEADER_BYTES if payload is batch else 0
        may_delay = contains(payload, DELIVER_AT_MARK)
        header, batch = as_the_topic_wants(header, batch, settings, now_ms)
        fresh = Fresh(header, batch, settings.delay_max_ms if may_delay else None, transaction, opened)
        kept, _ = await self._append_in_turn(partition, fresh)
        is_stamped = settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        return Placed(partition, kept.stored, header.record_count, now_ms if is_stamped else None)

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
        stored = placed.stored
        await placed.partition.settled(stored.end, under=stored.under, gives_up=True)

    async def _append_in_turn(self, partition: Partition, fresh: Fresh) -> tuple[Kept, Divided | None]:
        """At once, unless records of the batch have to go to the schedule first, or those of one before it."""
        turn = self._turns.get(partition)
        if turn is None:
            if fresh.delay_ms_max is None:
                return await self._append_now(partition, fresh)
            turn = self._turns[partition] = asyncio.Lock()
        async with turn:
            return await self._append_now(partition, fresh)

    async def _append_now(self, partition: Partition, fresh: Fresh) -> tuple[Kept, Divided | None]:
        header, batch, delay_ms_max, transaction, payload = fresh
        if not partition.is_led:
            await partition.lead()
        if header.attributes & ATTRIBUTE_TRANSACTIONAL:
            await self._verify(partition, header, transaction)
        divided = None
        if delay_ms_max is not None and not self._division.sends_all_on(partition):
            divided = await self._intake.divide(partition, header, batch, delay_ms_max)
            header, batch, payload = divided.header, divided.batch, None
        scaling = self._division.homes.scaling(partition.topic)
        if scaling is None:
            return Kept(self._append(partition, batch, header)), divided
        opened = Opened(header, batch, payload)
        return await self._division.append(partition, opened, scaling, self._append), divided

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
        *,
        is_idempotent: bool,
    ) -> dict[int, list[int]]:
        """Partition to positions in the request. Each message is assigned once, here, and nowhere else."""
        groups: dict[int, list[int]] = {}
        scaling = self._division.homes.scaling(target.facts.name)
        bytes_max = target.settings.max_message_bytes - BATCH_OVERHEAD_BYTES
        limits = self._guard.limits
        keyless: int | None = None
        for at, message in enumerate(messages):
            record = message.record
            index = message.partition
            try:
                check_size(record, bytes_max, limits)
                if index is not None:
                    target.check_partition(index)
                if record.headers:
                    self._note_delay(at, record, target.settings, due_ms)
            except GoQueueError as error:
                outcomes[at] = Outcome(index, None, error)
                continue
            if record.key is not None:
                if index is None or (scaling is not None and not is_idempotent):
                    index = index_of(target, scaling, record.key, index)
            elif index is None:
                index = keyless = next_keyless(target, scaling) if keyless is None else keyless
            elif scaling is not None and not is_idempotent:
                index = self._division.home_of(target.facts.name, index)
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
    ) -> list[tuple[Stored, list[int]]]:
        """Append the records in as few batches as fit: where each is, with the places of its records in the request."""
        done: list[tuple[Stored, list[int]]] = []
        codec = CODEC_OF_SETTING.get(settings.compression_type, Codec.NONE)
        is_stamped = settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        attributes = ATTRIBUTE_LOG_APPEND_TIME if is_stamped else 0
        first = 0
        bytes_max = settings.max_message_bytes - BATCH_OVERHEAD_BYTES
        chunks = chunks_of(records, bytes_max) if len(records) > 1 else [records]
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
                kept, divided = await self._append_patiently(partition, fresh)
            except GoQueueError as error:
                for at in places:
                    outcomes[at] = Outcome(partition.index, None, error)
                continue
            later = divided.later if divided is not None else {}
            for position, at in enumerate(places):
                if position in later:
                    id, due_ms = later[position]
                    outcomes[at] = Outcome(partition.index, id, deliver_at_ms=due_ms)
                elif position in kept.moved:
                    outcomes[at] = Outcome(*kept.moved[position])
                else:
                    outcomes[at] = Outcome(partition.index, kept.stored.base_offset + position)
            done.append((kept.stored, [at for place, at in enumerate(places) if place not in kept.moved]))
        return done

    async def _append_patiently(self, partition: Partition, fresh: Fresh) -> tuple[Kept, Divided | None]:
        """A node alone has nobody who sends it again; in a cluster that is whoever spreads the messages."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE_S
        while True:
            try:
                return await self._append_in_turn(partition, fresh)
            except HomeUndecided:
                if not partition.is_solo or asyncio.get_running_loop().time() >= deadline:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def _until_durable(
        self, waiting: list[tuple[Partition, Stored, list[int]]], outcomes: list[Outcome | None]
    ) -> None:
        for partition, _, _ in waiting:
            partition.commit.request()  # all disks work at once, then each is waited for
        since = asyncio.get_running_loop().time()
        for partition, stored, positions in waiting:
            try:
                await partition.settled(stored.end, under=stored.under, since=since, gives_up=True)
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


def _sender(producer: Producer, first: int) -> Producer:
    """The producer as of its record number `first` of this request."""
    return Producer(producer.id, producer.epoch, last_sequence(producer.sequence, first + 1))


def _not_a_clients(producer_id: int) -> GoQueueError:
    return InvalidBatch(
        f"producer id {producer_id} is of those that only partitions use, for what they send on",
        producer_id=producer_id,
    )


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
