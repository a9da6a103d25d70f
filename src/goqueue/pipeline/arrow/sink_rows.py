"""Rows that are to become records: Arrow columns of the types that people have, as the buffers that the kernel reads.

What is wrong with a whole column (its type) is refused at once. What is wrong with a row is noted with the row, because
the sink may be told to go on without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from goqueue.log.columns import NO_TIMESTAMP, TIMESTAMP_MS_MAX, Buffer, Lists, Rows, Strings
from goqueue.model.delay import parse_deliver_at_ms
from goqueue.model.errors import InvalidDelay
from goqueue.model.priority import LANE_COUNT
from goqueue.pipeline.errors import BadRow, PipelineError

NO_PRIORITY = -1
NO_DELAY = -1
DELIVER_AT_MS_MAX = 10**15 - 1  # the header's digits are read up to fifteen
SCHEMA_ID_MAX = 2**31 - 1

_LARGE_HEADERS = pa.large_list(
    pa.struct([pa.field("key", pa.large_string()), pa.field("value", pa.large_binary())])
)
_PER_MILLISECOND = {"us": 1_000, "ns": 1_000_000}

Column: TypeAlias = pa.Array | pa.ChunkedArray
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SinkRows:
    """The columns key, value, headers, priority, deliver_at and timestamp of a table, each where it has it."""

    columns: Rows
    problems: dict[int, str]  # row to what is wrong with it
    timestamps: Integers | None

    @classmethod
    def of(cls, batch: pa.RecordBatch | pa.Table, *, schema_id: int | None = None) -> SinkRows:
        """With a schema id, values get the prefix by which consumers find their schema."""
        given = {name: batch.column(at) for at, name in enumerate(batch.schema.names)}
        problems: dict[int, str] = {}
        headers, priorities = given.get("headers"), given.get("priority")
        deliver_ats, timestamps = given.get("deliver_at"), given.get("timestamp")
        times = None if timestamps is None else _timestamps(timestamps, problems)
        columns = Rows(
            length=batch.num_rows,
            keys=strings_of("key", given["key"]) if "key" in given else None,
            values=strings_of("value", given["value"]) if "value" in given else None,
            headers=None if headers is None else _lists(headers, problems),
            priorities=None if priorities is None else _priorities(priorities, problems),
            deliver_ats=None if deliver_ats is None else _deliver_ats(deliver_ats, problems),
            timestamps=None if times is None else times.data,
            prefix=_prefix(schema_id),
        )
        return cls(columns, problems, times)

    @property
    def count(self) -> int:
        return self.columns.length

    def check(self, picked: Integers) -> None:
        """That the rows are there, and nothing is wrong with any of them."""
        for row in (int(picked.min()), int(picked.max())):
            if not 0 <= row < self.count:
                raise BadRow(f"there is no row {row}; there are {self.count}")
        if not self.problems:
            return
        for row in picked.tolist():
            if row in self.problems:
                raise BadRow(f"row {row}: {self.problems[row]}")

    def times_of(self, picked: Integers, usual_ms: int) -> Integers | None:
        """When each of the rows was, if rows have times of their own."""
        if self.timestamps is None:
            return None
        times = self.timestamps[picked]
        return np.where(times == NO_TIMESTAMP, usual_ms, times)


def strings_of(name: str, column: Column) -> Strings:
    """A column of bytes or text."""
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if not _is_block(kind):
        raise _wrong_type(name, column, "binary or a string")
    array = _whole(column.cast(pa.large_binary()))
    validity, offsets, data = array.buffers()
    if not len(array):
        return Strings(None, bytes(8), b"", 0, 0)
    return Strings(
        None if validity is None else memoryview(validity),
        memoryview(offsets),
        b"" if data is None else memoryview(data),
        array.offset,
        len(array),
    )


def _is_block(kind: pa.DataType) -> bool:
    checks: tuple[Callable[[pa.DataType], bool], ...] = (
        types.is_binary,
        types.is_string,
        types.is_large_binary,
        types.is_large_string,
        types.is_binary_view,
        types.is_string_view,
        types.is_fixed_size_binary,
        types.is_null,
    )
    return any(check(kind) for check in checks)


def _whole(column: Column) -> pa.Array:
    """One array of a column that may come in chunks. Types with 64-bit offsets only: nothing can overflow."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _wrong_type(name: str, column: Column, right: str) -> PipelineError:
    return PipelineError(f"column {name} is of type {column.type}; it must be {right}")


def _prefix(schema_id: int | None) -> bytes:
    if schema_id is None:
        return b""
    if not 0 <= schema_id <= SCHEMA_ID_MAX:
        raise PipelineError(f"schema id is {schema_id}; it must be 0 to {SCHEMA_ID_MAX}")
    return b"\x00" + schema_id.to_bytes(4, "big")


def _lists(column: Column, problems: dict[int, str]) -> Lists:
    if not _is_headers(column.type):
        raise _wrong_type(
            "headers", column, "array<struct<key: string, value: binary>> or map<string, binary>"
        )
    try:
        lists = _whole(column.cast(_LARGE_HEADERS))
    except pa.ArrowInvalid as error:
        raise PipelineError(f"column headers cannot be written: {error}") from None
    structs = lists.values
    names = _text_names(lists, structs.field(0), problems)
    validity, offsets = lists.buffers()[:2]
    _note(lists, structs.is_null(), "a header has no name", problems)
    _note(lists, names.is_null(), "a header has no name", problems)
    return Lists(
        None if validity is None else memoryview(validity),
        memoryview(offsets) if len(lists) else bytes(8),
        lists.offset if len(lists) else 0,
        strings_of("headers", names.fill_null("") if names.null_count else names),  # their rows are noted
        strings_of("headers", structs.field(1)),
    )


def _is_headers(kind: pa.DataType) -> bool:
    if types.is_null(kind):
        return True
    if types.is_map(kind):
        return _is_block(kind.key_type) and _is_block(kind.item_type)
    if not (types.is_list(kind) or types.is_large_list(kind)):
        return False
    entry = kind.value_type
    return (
        types.is_struct(entry)
        and sorted(field.name for field in entry) == ["key", "value"]
        and all(_is_block(field.type) for field in entry)
    )


def _text_names(lists: pa.Array, names: pa.Array, problems: dict[int, str]) -> pa.Array:
    """The names, empty where one is no text: what claims to be may be any bytes, and the broker's clients want text."""
    raw = names.cast(pa.large_binary())
    try:
        raw.cast(pa.large_string())
    except pa.ArrowInvalid:
        is_wrong = pa.array([name is not None and not _is_text(name) for name in raw.to_pylist()], pa.bool_())
        _note(lists, is_wrong, "a header's name is not UTF-8", problems)
        return pc.if_else(is_wrong, pa.scalar(b"", pa.large_binary()), raw).cast(pa.large_string())
    return names


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _note(lists: pa.Array, is_wrong: pa.Array, sentence: str, problems: dict[int, str]) -> None:
    """With the rows that have one of these elements."""
    if not pc.any(is_wrong).as_py():
        return
    elements = np.flatnonzero(is_wrong.to_numpy(zero_copy_only=False))
    ends = lists.offsets.to_numpy()  # of the rows of this slice alone
    is_valid = lists.is_valid().to_numpy(zero_copy_only=False)
    for row in np.unique(np.searchsorted(ends, elements, side="right") - 1).tolist():
        if 0 <= row < len(lists) and is_valid[row]:
            problems[row] = sentence


def _priorities(column: Column, problems: dict[int, str]) -> Buffer:
    if not (types.is_integer(column.type) or types.is_null(column.type)):
        raise _wrong_type("priority", column, f"an integer, 0 to {LANE_COUNT - 1}")
    numbers = _integers("priority", column, NO_PRIORITY)
    is_given = _is_given(column)
    wrong = is_given & ((numbers < 0) | (numbers >= LANE_COUNT))
    for row in np.flatnonzero(wrong).tolist():
        problems[row] = f"priority is {numbers[row]}; it must be 0 to {LANE_COUNT - 1}"
    return np.where(wrong, NO_PRIORITY, numbers).astype(np.int8).data


def _deliver_ats(column: Column, problems: dict[int, str]) -> Buffer:
    if types.is_string(column.type) or types.is_large_string(column.type):
        return _parsed(column, problems).data
    if types.is_timestamp(column.type) and column.type.unit in _PER_MILLISECOND:
        divisor = _PER_MILLISECOND[column.type.unit]
        numbers = -(-_integers("deliver_at", column, 0) // divisor)  # late rather than early
    else:
        numbers = _milliseconds("deliver_at", column, "a timestamp, RFC 3339 text or milliseconds")
    is_given = _is_given(column)
    wrong = is_given & ((numbers < 0) | (numbers > DELIVER_AT_MS_MAX))
    for row in np.flatnonzero(wrong).tolist():
        problems[row] = f"deliver_at is {numbers[row]} ms; it must be 0 to {DELIVER_AT_MS_MAX} since 1970"
    return np.where(is_given & ~wrong, numbers, NO_DELAY).data


def _parsed(column: Column, problems: dict[int, str]) -> Integers:
    due_ms = np.full(len(column), NO_DELAY, np.int64)
    for row, text in enumerate(column.to_pylist()):
        if text is None:
            continue
        try:
            at_ms = parse_deliver_at_ms(text)
        except InvalidDelay as error:
            problems[row] = str(error)
            continue
        if at_ms < 0:
            problems[row] = f"deliver_at is {text}; it must be 1970 or later"
        else:
            due_ms[row] = at_ms
    return due_ms


def _timestamps(column: Column, problems: dict[int, str]) -> Integers:
    numbers = _milliseconds("timestamp", column, "a timestamp or milliseconds")
    is_given = _is_given(column)
    wrong = is_given & ((numbers < -TIMESTAMP_MS_MAX) | (numbers > TIMESTAMP_MS_MAX))
    for row in np.flatnonzero(wrong).tolist():
        problems[row] = f"timestamp is {numbers[row]} ms; it must be at most {TIMESTAMP_MS_MAX} from 1970"
    return np.where(is_given & ~wrong, numbers, NO_TIMESTAMP)


def _milliseconds(name: str, column: Column, right: str) -> Integers:
    """Rounded down; 0 where there is none."""
    if types.is_integer(column.type) or types.is_null(column.type):
        return _integers(name, column, 0)
    if not types.is_timestamp(column.type):
        raise _wrong_type(name, column, right)
    if column.type.unit in _PER_MILLISECOND:
        return _integers(name, column, 0) // _PER_MILLISECOND[column.type.unit]
    try:
        return _integers(name, column.cast(pa.timestamp("ms", column.type.tz)), 0)
    except pa.ArrowInvalid as error:
        raise PipelineError(f"column {name} cannot be written: {error}") from None


def _integers(name: str, column: Column, fill: int) -> Integers:
    try:
        filled = _whole(pc.fill_null(column.cast(pa.int64()), fill))
    except pa.ArrowInvalid as error:
        raise PipelineError(f"column {name} cannot be written: {error}") from None
    return np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), np.int64)


def _is_given(column: Column) -> npt.NDArray[np.bool_]:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return np.asarray(_whole(column.is_valid()).to_numpy(zero_copy_only=False), np.bool_)
