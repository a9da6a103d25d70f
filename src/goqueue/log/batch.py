"""Record batch v2 (magic 2), Kafka's format on disk and on the wire; docs/format/record.md has every byte.

The base offset and the leader epoch lie outside the checksum, so the leader assigns both by writing the
first sixteen bytes and never touches, decodes or re-hashes a record. The checksum covers everything from
the attributes to the end. Beyond Kafka's rules this log keeps one of its own: the offset ranges of its
batches tile it without gaps (compaction leaves an empty batch where records were), so a damaged base
offset is as visible as a damaged record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from goqueue.log.compression import Codec, codec_of, compress, decompress
from goqueue.log.records import Row, check_records, decode_records, encode_records, encode_row
from goqueue.model.errors import CorruptBatch, InvalidBatch, MessageTooLarge
from goqueue.model.record import NewRecord, Producer, StoredRecord

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size  # 61
PREFIX = struct.Struct(">qii")  # base offset, length, leader epoch: what the leader assigns
PREFIX_BYTES = PREFIX.size
LENGTH_OVERHEAD = 12  # base offset and the length field itself
CHECKED_FROM = 21  # the checksum covers the attributes and all that follows
MAGIC = 2

NO_PRODUCER = -1
ATTRIBUTE_LOG_APPEND_TIME = 0x08
ATTRIBUTE_TRANSACTIONAL = 0x10
ATTRIBUTE_CONTROL = 0x20
ATTRIBUTE_DELETE_HORIZON = 0x40

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_BODY = struct.Struct(">hiqqqhii")  # from the attributes to the record count
_HEAD = struct.Struct(">qiibI")  # from the base offset to the checksum
_NOBODY = (NO_PRODUCER, -1, -1)
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35


class BatchHeader(NamedTuple):
    """The 61 bytes before the records. `length` counts from the leader epoch on, as Kafka's does."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & ATTRIBUTE_TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & ATTRIBUTE_CONTROL)


def read_header(data: bytes | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`; InvalidBatch where there are not enough bytes for one."""
    if len(data) - position < HEADER_BYTES:
        raise InvalidBatch(f"a batch has at least {HEADER_BYTES} bytes; {len(data) - position} are there")
    return BatchHeader._make(HEADER.unpack_from(data, position))


def build_batch(
    records: Sequence[NewRecord],
    timestamp_ms: int,
    *,
    producer: Producer | None = None,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
) -> bytes:
    """As `encode_batch`, the bytes alone."""
    _, batch = encode_batch(records, timestamp_ms, producer=producer, codec=codec, attributes=attributes)
    return batch


def encode_batch(
    records: Sequence[NewRecord],
    timestamp_ms: int,
    *,
    producer: Producer | None = None,
    codec: Codec = Codec.NONE,
    attributes: int = 0,
) -> tuple[BatchHeader, bytes]:
    """A batch of new records at base offset 0; the log assigns the offset when it appends."""
    payload = encode_records(records)
    if codec is not Codec.NONE:
        payload = compress(codec, payload)
    last = len(records) - 1
    flags = attributes | codec
    id, epoch, sequence = (producer.id, producer.epoch, producer.sequence) if producer else _NOBODY
    body = _BODY.pack(flags, last, timestamp_ms, timestamp_ms, id, epoch, sequence, last + 1) + payload
    length = len(body) + CHECKED_FROM - LENGTH_OVERHEAD
    crc = crc32c(body)
    # fmt: off
    header = BatchHeader(
        0, length, -1, MAGIC, crc, flags, last, timestamp_ms, timestamp_ms, id, epoch, sequence, last + 1
    )
    # fmt: on
    return header, _HEAD.pack(0, length, -1, MAGIC, crc) + body


def assemble(header: BatchHeader, payload: bytes) -> bytes:
    """Header and (compressed) payload as one batch, with length and checksum computed."""
    body = _BODY.pack(*header[5:]) + payload
    length = len(body) + CHECKED_FROM - LENGTH_OVERHEAD
    return _HEAD.pack(header.base_offset, length, header.leader_epoch, MAGIC, crc32c(body)) + body


def empty_batch(base_offset: int, last_offset: int, *, leader_epoch: int, timestamp_ms: int) -> bytes:
    """A batch without records that keeps the offsets of those that were there."""
    return assemble(
        BatchHeader(
            base_offset=base_offset,
            length=0,
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=last_offset - base_offset,
            base_timestamp=timestamp_ms,
            max_timestamp=timestamp_ms,
            producer_id=NO_PRODUCER,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=0,
        ),
        b"",
    )


def stamped(batch: bytes, timestamp_ms: int) -> bytes:
    """The batch with log-append time: one timestamp for all of its records, whatever they carry."""
    header = read_header(batch)
    return assemble(
        header._replace(attributes=header.attributes | ATTRIBUTE_LOG_APPEND_TIME, max_timestamp=timestamp_ms),
        batch[HEADER_BYTES:],
    )


def crc_matches(data: bytes | memoryview, position: int, header: BatchHeader) -> bool:
    """Whether the bytes of the batch at `position` are those that were hashed. Needs the whole batch."""
    body = memoryview(data)[position + CHECKED_FROM : position + header.size]
    return crc32c(body) == header.crc


def frame_problem(header: BatchHeader) -> str | None:
    """What is impossible about a header, before any of its bytes are trusted."""
    if header.magic != MAGIC:
        return f"magic is {header.magic}, not {MAGIC}"
    if header.length < HEADER_BYTES - LENGTH_OVERHEAD:
        return f"length {header.length} is below the {HEADER_BYTES - LENGTH_OVERHEAD} bytes of a header"
    if header.base_offset < 0:
        return f"base offset is {header.base_offset}"
    if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        return f"{header.record_count} records do not fit a last offset delta of {header.last_offset_delta}"
    return None


def validate_new(batch: bytes | memoryview, bytes_max: int) -> BatchHeader:
    """Everything that must be true of a batch before it may be appended; the header if all is."""
    header, _ = validate_and_open(batch, bytes_max)
    return header


def validate_and_open(batch: bytes | memoryview, bytes_max: int) -> tuple[BatchHeader, bytes | memoryview]:
    """As `validate_new`, and bytes that hold the records as they are when they are not compressed."""
    header = read_header(batch)
    if header.size != len(batch):
        raise InvalidBatch(
            f"the batch says it has {header.size} bytes; {len(batch)} came",
            stated=header.size,
            actual=len(batch),
        )
    problem = frame_problem(header)
    if problem:
        raise InvalidBatch(problem)
    if len(batch) > bytes_max:
        raise MessageTooLarge("the batch", len(batch), bytes_max)
    if not crc_matches(batch, 0, header):
        raise CorruptBatch(f"the batch's checksum is not the stated {header.crc:#010x}", crc=header.crc)
    if header.record_count != header.last_offset_delta + 1:
        raise InvalidBatch(
            f"a new batch of {header.record_count} records cannot have a last offset delta of "
            f"{header.last_offset_delta}",
            record_count=header.record_count,
        )
    if header.attributes & (ATTRIBUTE_CONTROL | ATTRIBUTE_DELETE_HORIZON):
        raise InvalidBatch(
            "control batches and delete horizons are the broker's to write", attributes=header.attributes
        )
    if header.producer_id == NO_PRODUCER:
        if header.is_transactional:
            raise InvalidBatch("a transactional batch needs a producer", attributes=header.attributes)
    elif min(header[9:12]) < 0:
        raise InvalidBatch(
            f"producer {header.producer_id} needs an epoch and a sequence from 0 up, not "
            f"{header.producer_epoch} and {header.base_sequence}",
            producer_id=header.producer_id,
        )
    largest, payload = _opened(batch, header)
    if largest is None or header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        return header, payload
    # Some clients leave the field empty. The time index is built on it, so it is what the records say.
    newest = max(_INT64_MIN, min(header.base_timestamp + largest, _INT64_MAX))
    return header._replace(max_timestamp=newest), payload


def as_validated(batch: bytes, header: BatchHeader) -> tuple[BatchHeader, bytes]:
    """The batch with the header that `validate_new` gave: the same bytes, but where it had to correct something."""
    if _MAX_TIMESTAMP.unpack_from(batch, _MAX_TIMESTAMP_AT)[0] == header.max_timestamp:
        return header, batch
    corrected = assemble(header, batch[HEADER_BYTES:])
    return read_header(corrected), corrected


def check_payload(batch: bytes | memoryview, header: BatchHeader) -> int | None:
    """Count, lengths and deltas of the records, without building one; the largest timestamp delta, if there is one."""
    largest, _ = _opened(batch, header)
    return largest


def _opened(batch: bytes | memoryview, header: BatchHeader) -> tuple[int | None, bytes | memoryview]:
    codec = codec_of(header.attributes)
    try:
        if codec is Codec.NONE:
            count, last = header.record_count, header.last_offset_delta
            return check_records(batch, HEADER_BYTES, count, last), batch
        payload = decompress(codec, batch[HEADER_BYTES:])
        return check_records(payload, 0, header.record_count, header.last_offset_delta), payload
    except ValueError as error:
        raise InvalidBatch(f"the batch is malformed: {error}") from None


def open_payload(batch: bytes | memoryview, header: BatchHeader) -> tuple[bytes | memoryview, int]:
    """Bytes that hold the records as they are when they are not compressed, and where in them they begin."""
    codec = codec_of(header.attributes)
    if codec is Codec.NONE:
        return memoryview(batch)[: header.size], HEADER_BYTES
    try:
        return decompress(codec, batch[HEADER_BYTES : header.size]), 0
    except ValueError as error:
        raise InvalidBatch(f"the batch is malformed: {error}") from None


def decode_rows(batch: bytes | memoryview, header: BatchHeader, wanted: list[int] | None = None) -> list[Row]:
    """The records as plain tuples of deltas, keys, values and headers: all, or those with these rising offset deltas."""
    codec = codec_of(header.attributes)
    picked = () if wanted is None else (wanted,)
    count, last = header.record_count, header.last_offset_delta
    try:
        if codec is Codec.NONE:
            return decode_records(memoryview(batch)[: header.size], HEADER_BYTES, count, last, *picked)
        payload = decompress(codec, batch[HEADER_BYTES : header.size])
        return decode_records(payload, 0, count, last, *picked)
    except ValueError as error:
        raise InvalidBatch(f"the batch is malformed: {error}") from None


def decode_batch(batch: bytes | memoryview, header: BatchHeader) -> Iterator[StoredRecord]:
    """The records with their offsets and timestamps."""
    base, timestamp = header.base_offset, header.base_timestamp
    if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        stamp = header.max_timestamp
        for offset_delta, _, key, value, headers in decode_rows(batch, header):
            yield StoredRecord(base + offset_delta, stamp, key, value, headers)
        return
    for offset_delta, timestamp_delta, key, value, headers in decode_rows(batch, header):
        yield StoredRecord(base + offset_delta, timestamp + timestamp_delta, key, value, headers)


def record_of(header: BatchHeader, row: Row) -> StoredRecord:
    """One of the rows, as `decode_batch` gives it."""
    offset_delta, timestamp_delta, key, value, headers = row
    is_stamped = header.attributes & ATTRIBUTE_LOG_APPEND_TIME
    timestamp = header.max_timestamp if is_stamped else header.base_timestamp + timestamp_delta
    return StoredRecord(header.base_offset + offset_delta, timestamp, key, value, headers)


def rebuild_batch(header: BatchHeader, rows: Sequence[Row], *, delete_horizon_ms: int | None) -> bytes:
    """The batch with only these of its rows: offsets, sequences and codec stay as they were.

    With a delete horizon (KIP-534) the base timestamp becomes the moment from which tombstones may go, and
    the deltas are shifted so that every record keeps its own timestamp (or, where a client wrote one at the
    edge of 64 bits, the nearest that can be written: a batch that nobody can read would be worse)."""
    if delete_horizon_ms is not None:
        shift = header.base_timestamp - delete_horizon_ms
        rows = [(row[0], max(_INT64_MIN, min(row[1] + shift, _INT64_MAX)), *row[2:]) for row in rows]
    payload = b"".join(map(encode_row, rows))
    return refill_batch(header, payload, record_count=len(rows), delete_horizon_ms=delete_horizon_ms)


def refill_batch(
    header: BatchHeader, payload: bytes, *, record_count: int, delete_horizon_ms: int | None
) -> bytes:
    """The batch with only these of its records, encoded; with a horizon, to the timestamp deltas that go with it."""
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        attributes |= ATTRIBUTE_DELETE_HORIZON
        base_timestamp = delete_horizon_ms
    if record_count:
        payload = compress(codec_of(header.attributes), payload)
    else:
        attributes, payload = attributes & ~0x07, b""
    return assemble(
        header._replace(attributes=attributes, base_timestamp=base_timestamp, record_count=record_count),
        payload,
    )
