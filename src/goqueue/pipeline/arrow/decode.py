"""The rows of a span, from the batches that a transport brings: what a reader must not see is left out here, once, for
all transports.

Batches are checked and gathered into columns until there are enough for a RecordBatch, whose buffers are the gathered
ones: each byte of a key or value is copied once. Aborted transactions are left out as Kafka's consumers do it: a producer
counts as aborted from the first offset of its transaction to the marker that ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

from goqueue.log.batch import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    CHECKED_FROM,
    HEADER_BYTES,
    BatchHeader,
    frame_problem,
    read_header,
)
from goqueue.log.compression import CODEC_BITS, codec_of, decompress
from goqueue.log.control import read_marker
from goqueue.log.gathering import GATHERED, Parts, gatherer
from goqueue.model.errors import InvalidBatch, UnsupportedCompression
from goqueue.pipeline.columns import HEADERS, arrow_schema
from goqueue.pipeline.errors import DataLoss
from goqueue.pipeline.span import Aborted, Chunk, Span

ROWS_MAX = 32_768
ROWS_LIMIT = 1_000_000  # what rows_max may be at most
DATA_BYTES_MAX = (
    8 * 1024 * 1024
)  # of the records of one RecordBatch, about: larger ones leave the caches and are slower

_SPECIAL = CODEC_BITS | ATTRIBUTE_CONTROL
_Batch = tuple[BatchHeader, memoryview]


class SpanDecoder:
    """Gives the rows of one span as RecordBatches with these columns. For one use."""

    def __init__(
        self, span: Span, columns: tuple[str, ...], *, committed: bool, rows_max: int = ROWS_MAX
    ) -> None:
        if not 1 <= rows_max <= ROWS_LIMIT:
            raise ValueError(f"rows_max is {rows_max}; it must be 1 to {ROWS_LIMIT}")
        self._span = span
        self._rows_max = rows_max
        self._next = span.start  # rows before it are outside of the span, or were given
        self._aborts = _Aborts() if committed else None
        self._gatherer = gatherer(tuple(name for name in columns if name in GATHERED))
        self._frames = _Frames(span, columns)

    @property
    def next_offset(self) -> int:
        """Everything of the span before it has been decoded."""
        return self._next

    def decode(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        """In the order of their offsets, up to a batch that is damaged: `DataLoss` names it."""
        for chunk in chunks:
            if self._aborts:
                self._aborts.expect(chunk.aborted)
            for header, data in self._special_batches(chunk):
                if header.base_offset >= self._span.end:
                    yield from self._flush()
                    return
                if header.end_offset <= self._next and not header.attributes & ATTRIBUTE_CONTROL:
                    continue
                if self._is_full_with(header.record_count, len(data)):
                    yield from self._flush()
                self._take_in(header, data, is_checked=chunk.is_checked)
        yield from self._flush()

    def _special_batches(self, chunk: Chunk) -> Iterator[_Batch]:
        """Those that need more than gathering. What lies between them is gathered."""
        view = memoryview(chunk.data)
        crc = None if chunk.is_checked else crc32c
        position, end = 0, len(view)
        while True:
            bits = _SPECIAL | (ATTRIBUTE_TRANSACTIONAL if self._aborts and self._aborts.is_watching else 0)
            position, self._next = self._gatherer.add_run(
                view, position, self._next, self._span.end, self._rows_max, DATA_BYTES_MAX, bits, crc
            )
            if position >= end:
                return
            header = self._header(view, position)
            start, position = position, position + header.size
            yield header, view[start:position]

    def _header(self, view: memoryview, position: int) -> BatchHeader:
        try:
            header = read_header(view, position)
        except InvalidBatch as error:
            raise self._damage(self._next, str(error)) from None
        problem = frame_problem(header)
        there = len(view) - position
        if not problem and header.size > there:
            problem = f"the batch has {header.size} bytes; {there} are there"
        if problem:
            raise self._damage(self._next, problem)
        return header

    def _is_full_with(self, record_count: int, size_bytes: int) -> bool:
        gathered = self._gatherer
        if not gathered.rows:
            return False
        return (
            gathered.rows + record_count > self._rows_max or gathered.size_bytes + size_bytes > DATA_BYTES_MAX
        )

    def _take_in(self, header: BatchHeader, data: memoryview, *, is_checked: bool) -> None:
        try:
            if not is_checked and crc32c(data[CHECKED_FROM:]) != header.crc:
                raise InvalidBatch(f"its checksum is not the stated {header.crc:#010x}")
            if header.record_count and not self._is_hidden(header, data):
                self._gather(header, data)
        except (InvalidBatch, UnsupportedCompression, ValueError) as error:
            raise self._damage(header.base_offset, str(error)) from None
        self._next = max(self._next, header.end_offset)

    def _is_hidden(self, header: BatchHeader, data: memoryview) -> bool:
        """Whether a batch is none of the reader's: a marker, or of an aborted transaction."""
        if not header.attributes & (ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL):
            return False
        return self._aborts.hide(header, data) if self._aborts else header.is_control

    def _gather(self, header: BatchHeader, data: memoryview) -> None:
        payload: bytes | memoryview = data
        start = HEADER_BYTES
        if header.attributes & CODEC_BITS:
            payload, start = decompress(codec_of(header.attributes), data[HEADER_BYTES:]), 0
        is_stamped = header.attributes & ATTRIBUTE_LOG_APPEND_TIME
        self._gatherer.add(
            payload,
            start,
            header.record_count,
            header.last_offset_delta,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if is_stamped else None,
            self._next,
            self._span.end,
        )

    def _flush(self) -> Iterator[pa.RecordBatch]:
        is_small = self._gatherer.size_bytes <= DATA_BYTES_MAX
        count, columns = self._gatherer.take()
        if not count:
            return
        batch = self._frames.record_batch(count, columns)
        if is_small and count <= self._rows_max:
            yield batch
            return
        for start, end in _cuts(count, columns, self._rows_max):
            yield batch.slice(start, end - start)

    def _damage(self, offset: int, reason: str) -> DataLoss:
        topic, partition = self._span.place
        return DataLoss(f"{topic}-{partition} is damaged in the batch at offset {offset}: {reason}")


class _Aborts:
    """Whose batches do not count, as the reader goes on."""

    def __init__(self) -> None:
        self._expected: list[Aborted] = []  # those ahead, the nearest last
        self._known: set[Aborted] = set()
        self._producers: set[int] = set()

    def expect(self, aborted: Iterable[Aborted]) -> None:
        """Transactions that reach over several chunks come with each of them, and count once."""
        new = set(aborted) - self._known
        if new:
            self._known |= new
            self._expected = sorted({*self._expected, *new}, key=lambda one: one.first_offset, reverse=True)

    @property
    def is_watching(self) -> bool:
        """Whether there may be a batch that does not count before more are expected."""
        return bool(self._expected or self._producers)

    def hide(self, header: BatchHeader, data: memoryview) -> bool:
        """Of batches that belong to a transaction."""
        while self._expected and self._expected[-1].first_offset <= header.last_offset:
            self._producers.add(self._expected.pop().producer_id)
        if header.is_control:
            if header.producer_id in self._producers:
                marker = read_marker(data, header)
                if marker and not marker.is_commit:
                    self._producers.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._producers


class _Frames:
    """Makes RecordBatches of gathered columns and of those that are the same in every row."""

    def __init__(self, span: Span, columns: tuple[str, ...]) -> None:
        self._schema = arrow_schema(columns)
        self._constants: dict[str, pa.Array] = {}
        self._values = {"topic": pa.scalar(span.topic), "partition": pa.scalar(span.partition, pa.int32())}

    def record_batch(self, count: int, columns: dict[str, Parts]) -> pa.RecordBatch:
        arrays = [
            self._constant(field.name, count)
            if field.name in self._values
            else _array(field, count, columns[field.name])
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, count: int) -> pa.Array:
        known = self._constants.get(name)
        if known is None or len(known) < count:
            known = self._constants[name] = pa.repeat(self._values[name], count)
        return known.slice(0, count)


def _array(field: pa.Field, count: int, parts: Parts) -> pa.Array:
    buffers: list[pa.Buffer] = [None if part is None else pa.py_buffer(part) for part in parts]
    if field.type == HEADERS:
        return _headers(count, buffers)
    if len(buffers) == 1:
        buffers.insert(0, None)
    return pa.Array.from_buffers(field.type, count, buffers)


def _headers(count: int, buffers: list[pa.Buffer]) -> pa.Array:
    validity, list_offsets, name_offsets, names, value_validity, value_offsets, values = buffers
    header_count = len(name_offsets) // 4 - 1
    struct = HEADERS.value_type
    children = [
        pa.Array.from_buffers(pa.string(), header_count, [None, name_offsets, names]),
        pa.Array.from_buffers(pa.binary(), header_count, [value_validity, value_offsets, values]),
    ]
    structs = pa.Array.from_buffers(struct, header_count, [None], children=children)
    return pa.Array.from_buffers(HEADERS, count, [validity, list_offsets], children=[structs])


def _cuts(count: int, columns: dict[str, Parts], rows_max: int) -> Iterator[tuple[int, int]]:
    """Rows [start, end) of each RecordBatch, where a single batch of records was too large for one."""
    ends = _data_ends(count, columns)
    start = 0
    while start < count:
        end = min(start + rows_max, count)
        if ends[end] - ends[start] > DATA_BYTES_MAX:
            within = int(np.searchsorted(ends, ends[start] + DATA_BYTES_MAX, side="right")) - 1
            end = min(end, max(within, start + 1))
        yield start, end
        start = end


def _data_ends(count: int, columns: dict[str, Parts]) -> npt.NDArray[np.int64]:
    """How many bytes of data come before each row, and before the end."""
    ends = np.zeros(count + 1, np.int64)
    for name in ("key", "value"):
        if name in columns:
            ends += _numbers(columns[name][1])
    if "headers" in columns:
        _, lists, name_ends, _, _, value_ends, _ = columns["headers"]
        rows = _numbers(lists)
        ends += _numbers(name_ends)[rows] + _numbers(value_ends)[rows]
    return ends


def _numbers(part: object) -> npt.NDArray[np.int32]:
    return np.frombuffer(part, np.int32)  # type: ignore[call-overload,no-any-return] # offsets are never None
