"""Clients of topics that get shorter: producers with and without keys, readers that begin again and again, and who deletes records."""

from __future__ import annotations

from typing import Any, NamedTuple

from goqueue.log.batch import build_batch, crc_matches, decode_batch, read_header
from goqueue.model.record import NewRecord, Producer
from goqueue.sim.cluster.client import RETRIABLE, ClusterClient, Leader
from goqueue.sim.cluster.history import Acked, Latest, Read
from goqueue.sim.cluster.readers import OFFSET_OUT_OF_RANGE, end_of
from goqueue.sim.cluster.shortening_disks import has
from goqueue.sim.cluster.shortening_history import Begun, Deleted, Look, ShorteningHistory, text_of
from goqueue.sim.cluster.world import World
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.client import requests
from goqueue.sim.kafka.history import Epoch, Part, now_ms, now_s

_TIMEOUT_MS = 5_000
_EARLIEST = -2
_HIGH_WATERMARK = -1
_KEY_COUNT = 4  # at a time
_BATCHES_PER_KEY = 4
_TOMBSTONE_RATE = 0.3
_LOST_RATE = 0.2  # of requests that go to any node, which has to send them away if it does not lead
_BYTES_MAX = 1_000_000


class ShorteningProducer:
    """Idempotent, `acks=all`; sends each batch until it is acknowledged, and goes on until nothing fails any more."""

    def __init__(self, world: World, history: ShorteningHistory, name: str, part: Part) -> None:
        self._world = world
        self._history = history
        self._rng = world.child()
        self._client = world.client(name)
        self._name = name
        self._part = part
        self._producer: Epoch | None = None
        self._sequence = 0
        self._number = 0
        self._tried_s = 0.0  # when the batch that is on its way was sent for the first time
        self.last_error = ""

    async def run(self, last_count: int) -> None:
        """`last_count`: of batches at the end, which everybody gets in peace."""
        while not self._world.is_calm:
            await self._send_one()
        for _ in range(last_count):
            await self._send_one()
        self._client.close()

    async def _send_one(self) -> None:
        await self._world.breathe(self._rng, 4.0)
        records = [self._new_record(index) for index in range(self._rng.randint(1, 4))]
        texts = tuple(text_of(record.key, record.value) for record in records)
        self._number += 1
        self._tried_s = now_s()
        self._history.sent_s |= {text: self._tried_s for text in texts if text not in self._history.sent_s}
        while not await self._send(records, texts):
            self._client.doubt(self._part)
            await self._client.pause()

    def _new_record(self, index: int) -> NewRecord:
        value = f"{self._name}.{self._number}.{index}".ljust(self._rng.choice((10, 60, 200)), ".").encode()
        if not self._history.is_compacted(self._part):
            return NewRecord(None, value)
        # Keys come and go: of most, what was written last stays the last word while things go on failing.
        key = f"k{self._number // _BATCHES_PER_KEY + self._rng.randrange(_KEY_COUNT)}".encode()
        return NewRecord(key, None if self._rng.random() < _TOMBSTONE_RATE else value)

    async def _send(self, records: list[NewRecord], texts: tuple[str, ...]) -> bool:
        try:
            if self._producer is None:
                self._producer = await self._begin()
            return self._producer is not None and await self._produce(self._producer, records, texts)
        except NoAnswer as error:
            self.last_error = str(error)
            return False

    async def _begin(self) -> Epoch | None:
        answer = await self._client.ask_any(
            "init_producer_id", 4, transactional_id=None, transaction_timeout_ms=60_000
        )
        if answer.error_code:
            self.last_error = f"InitProducerId gave {answer.error_code}"
            return None
        return Epoch(answer.producer_id, answer.producer_epoch)

    async def _produce(self, producer: Epoch, records: list[NewRecord], texts: tuple[str, ...]) -> bool:
        kinds, part = requests("produce"), self._part
        batch = build_batch(records, now_ms(), producer=Producer(*producer, self._sequence))
        leader = await self._client.leader_of(part)
        sent_s = now_s()
        one = kinds.PartitionProduceData(index=part.partition, records=batch)
        answer = await self._client.ask(
            leader.host,
            "produce",
            9,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[kinds.TopicProduceData(name=part.topic, partition_data=[one])],
        )
        result = answer.responses[0].partition_responses[0]
        if result.error_code:
            self.last_error = f"Produce gave {result.error_code}"
            if result.error_code not in RETRIABLE:
                self._history.violate(
                    f"{self._name}: Produce to {part} of {texts} gave {result.error_code} at {now_s():.3f} s"
                )
            return False
        self._sequence += len(texts)
        self._note(texts, result.base_offset, leader.host, sent_s)
        return True

    def _note(self, texts: tuple[str, ...], base_offset: int, host: str, sent_s: float) -> None:
        part, history = self._part, self._history
        needed_count = self._world.topics[part.topic].needed_count
        history.acked.setdefault(part, {}).update(enumerate(texts, base_offset))
        holders = self._holders(texts, base_offset)
        history.cluster.acked.append(
            Acked(part, base_offset, texts, host, holders, needed_count, sent_s, now_s())
        )

    def _holders(self, texts: tuple[str, ...], base_offset: int) -> tuple[str, ...]:
        """As `SimCluster.holders` has it, where records may be gone again by then. A disk that was lost since may have been
        counted on when the batch was stored, of which only a later try has heard."""
        is_compacted = self._history.is_compacted(self._part)
        return tuple(
            name
            for name, host in self._world.cluster.hosts.items()
            if has(host.disk, self._part, base_offset, texts, is_compacted=is_compacted)
            or (host.spoiled_s is not None and host.spoiled_s >= self._tried_s)
        )


class Shortened(NamedTuple):
    """An answer to a fetch."""

    error_code: int
    values: dict[int, str]
    next_offset: int
    log_start: int
    high_watermark: int


class ShorteningReader:
    """Follows partitions, and often from their start again, as one who has just come."""

    def __init__(self, world: World, history: ShorteningHistory, name: str) -> None:
        self._world = world
        self._history = history
        self._rng = world.child()
        self._client = world.client(name)
        self._name = name
        self._positions: dict[Part, int] = {}

    async def run(self) -> None:
        while True:
            part = self._rng.choice(self._world.parts())
            try:
                await self._rng.choice((self._ask_end, self._begin, *[self._follow] * 6))(part)
            except NoAnswer:
                self._client.doubt(part)
                await self._client.pause()
            await self._world.breathe(self._rng, 4.0)

    async def _begin(self, part: Part) -> None:
        """At the first record that there is; or at the very first, as who believes that nothing is ever deleted."""
        if self._rng.random() < 0.3:
            self._positions[part] = 0
            return
        asked_s = now_s()
        leader = await self._client.leader_of(part)
        found = await begin_of(self._client, leader, part)
        if found is None:
            self._client.doubt(part)
        else:
            self._note_start(leader, part, found, asked_s)
            self._positions[part] = found

    async def _ask_end(self, part: Part) -> None:
        leader = await self._client.leader_of(part)
        asked_s = now_s()
        found = await end_of(self._client, leader.host, part, leader.epoch)
        if found is None:
            self._client.doubt(part)
        else:
            self._history.cluster.latest.append(
                Latest(self._name, part, found, leader.epoch, asked_s, now_s())
            )

    async def _follow(self, part: Part) -> None:
        start = self._positions.get(part, 0)
        leader = await self._client.leader_of(part)
        asked_s = now_s()
        wait_ms, bytes_max = self._rng.choice((0, 200)), self._rng.choice((200, 2_000, _BYTES_MAX))
        found = await fetch(self._client, leader, part, start, wait_ms=wait_ms, bytes_max=bytes_max)
        if found.error_code and found.error_code != OFFSET_OUT_OF_RANGE:
            self._client.doubt(part)
            if found.error_code not in RETRIABLE:
                self._complain(leader, part, start, f"gave {found.error_code}")
            return
        self._note_start(leader, part, found.log_start, asked_s)
        if found.error_code:
            if start >= found.log_start:
                self._complain(leader, part, start, f"is out of range, and it begins at {found.log_start}")
            self._positions[part] = found.log_start
            return
        note_look(self._history, self._name, leader, part, start, found, asked_s)
        self._positions[part] = found.next_offset

    def _complain(self, leader: Leader, part: Part, start: int, what: str) -> None:
        self._history.violate(f"{self._name}: {part} at {start} {what} on {leader} at {now_s():.3f} s")

    def _note_start(self, leader: Leader, part: Part, offset: int, asked_s: float) -> None:
        self._history.begun.append(
            Begun(self._name, leader.host, part, offset, leader.epoch, asked_s, now_s())
        )


class RecordDeleter:
    """Moves the start of a log: to some record, or to the end of what is committed."""

    def __init__(self, world: World, history: ShorteningHistory, name: str) -> None:
        self._world = world
        self._history = history
        self._rng = world.child()
        self._client = world.client(name)
        self._name = name

    async def run(self, topic: str) -> None:
        while not self._world.is_calm:
            await self._world.breathe(self._rng, 0.4)
            part = self._rng.choice([part for part in self._world.parts() if part.topic == topic])
            try:
                await self._delete(part)
            except NoAnswer:
                self._client.doubt(part)
                await self._client.pause()
        self._client.close()

    async def _delete(self, part: Part) -> None:
        kinds = requests("delete_records")
        leader = await self._client.leader_of(part)
        end = await end_of(self._client, leader.host, part, leader.epoch)
        if end is None:
            self._client.doubt(part)
            return
        offset = self._rng.choice((_HIGH_WATERMARK, self._rng.randint(max(0, end - 10), end)))
        one = kinds.DeleteRecordsPartition(partition_index=part.partition, offset=offset)
        is_lost = self._rng.random() < _LOST_RATE
        host = self._rng.choice(self._world.cluster.names) if is_lost else leader.host
        answer = await self._client.ask(
            host,
            "delete_records",
            2,
            timeout_ms=_TIMEOUT_MS,
            topics=[kinds.DeleteRecordsTopic(name=part.topic, partitions=[one])],
        )
        found = answer.topics[0].partitions[0]
        if not found.error_code:
            asked = found.low_watermark if offset == _HIGH_WATERMARK else offset
            epoch = max(leader.epoch, self._epoch_of(host, part))
            self._history.deleted.append(Deleted(host, part, asked, epoch, now_s()))
        elif found.error_code in RETRIABLE:
            self._client.doubt(part)
        elif found.error_code != OFFSET_OUT_OF_RANGE:  # a new leader may not know yet how much is committed
            self._history.violate(
                f"{self._name}: DeleteRecords of {part} at {offset} gave {found.error_code}"
            )

    def _epoch_of(self, host: str, part: Part) -> int:
        """The newest in which it has led, which may be newer than what is known here."""
        led = self._history.cluster.led
        return max((one.epoch for one in led if (one.part, one.by.host) == (part, host)), default=-1)


def note_look(
    history: ShorteningHistory,
    reader: str,
    leader: Leader,
    part: Part,
    start: int,
    found: Shortened,
    asked_s: float,
) -> None:
    history.looks.append(
        Look(
            reader,
            leader.host,
            part,
            start,
            found.next_offset,
            found.values,
            leader.epoch,
            asked_s,
            now_s(),
        )
    )
    history.cluster.reads.append(
        Read(reader, leader.host, part, start, found.values, found.high_watermark, now_s(), leader.epoch)
    )


async def fetch(
    client: ClusterClient, leader: Leader, part: Part, start: int, *, wait_ms: int, bytes_max: int
) -> Shortened:
    """What there is, with keys, and where the partition begins."""
    kinds = requests("fetch")
    one = kinds.FetchPartition(
        partition=part.partition,
        current_leader_epoch=leader.epoch,
        fetch_offset=start,
        partition_max_bytes=bytes_max,
    )
    answer = await client.ask(
        leader.host,
        "fetch",
        12,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        topics=[kinds.FetchTopic(topic=part.topic, partitions=[one])],
    )
    if answer.error_code:
        return Shortened(int(answer.error_code), {}, start, -1, -1)
    found: Any = answer.responses[0].partitions[0]
    values, next_offset = _read(bytes(found.records or b""), start)
    return Shortened(
        int(found.error_code), values, next_offset, int(found.log_start_offset), int(found.high_watermark)
    )


async def begin_of(client: ClusterClient, leader: Leader, part: Part) -> int | None:
    """What a leader says is the start of a partition; None if it says nothing."""
    kinds = requests("list_offsets")
    one = kinds.ListOffsetsPartition(
        partition_index=part.partition, current_leader_epoch=leader.epoch, timestamp=_EARLIEST
    )
    answer = await client.ask(
        leader.host,
        "list_offsets",
        7,
        replica_id=-1,
        isolation_level=0,
        topics=[kinds.ListOffsetsTopic(name=part.topic, partitions=[one])],
    )
    found = answer.topics[0].partitions[0]
    return None if found.error_code else int(found.offset)


def _read(data: bytes, start: int) -> tuple[dict[int, str], int]:
    values: dict[int, str] = {}
    at, next_offset = 0, start
    while at < len(data):
        header = read_header(data, at)
        batch = data[at : at + header.size]
        if len(batch) < header.size or not crc_matches(data, at, header):
            raise AssertionError(f"a damaged batch was served after {next_offset}")
        at += header.size
        next_offset = max(start, header.end_offset)
        if not header.is_control:
            for record in decode_batch(batch, header):
                if record.offset >= start:
                    values[record.offset] = text_of(record.key, record.value)
    return values, next_offset
