"""The columns that a frame may have to be written, and Arrow's batches of them in the few types that the encoder knows.

Spark hands over what the frame has. Everything that can be wrong with a column as a whole is said on the driver, before a
task starts; what can be wrong with a single row is `flaws.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from goqueue.pipeline.columns import HEADERS, TIMESTAMP
from goqueue.pipeline.errors import PipelineError

_BYTES = ("binary", "string")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_HEADERS = (
    "array<struct<key:string,value:binary>>",
    "array<struct<key:string,value:string>>",
    "map<string,binary>",
    "map<string,string>",
)
ACCEPTED: dict[str, tuple[str, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "headers": _HEADERS,
    "topic": ("string",),
    "partition": _WHOLE,
    "priority": _WHOLE,
    "deliver_at": ("timestamp",),
    "timestamp": ("timestamp",),
}
_ARROW: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int64(),
    "priority": pa.int64(),
    "deliver_at": TIMESTAMP,
    "timestamp": TIMESTAMP,
}

_RAW_HEADERS = pa.list_(pa.struct([pa.field("key", pa.binary()), pa.field("value", pa.binary())]))

Row = Mapping[str, Any]  # Any: what Arrow gives as a Python value, by the type of its column
Mask = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]


def check_columns(columns: Sequence[tuple[str, str]], *, has_topic_option: bool) -> tuple[str, ...]:
    """Names and Spark's types of a frame's columns; the names as the sink calls them, in the frame's order."""
    names = tuple(name.lower() for name, _ in columns)
    unknown = [given for given, _ in columns if given.lower() not in ACCEPTED]
    if unknown:
        raise PipelineError(
            f"the frame has {_listed(unknown)} that a topic has no place for{_near(unknown)}; a row to write has "
            f"{', '.join(ACCEPTED)}: drop or rename the others"
        )
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise PipelineError(f"the frame has {_listed(double)} more than once; each column is written once")
    if "value" not in names:
        raise PipelineError(
            f"the frame has no column 'value' but {_listed(names)}; a row to write needs one, binary or string"
        )
    if "topic" not in names and not has_topic_option:
        raise PipelineError("where to? Give the option 'topic', or the frame a column 'topic'")
    for name, type in zip(names, (type for _, type in columns), strict=True):
        if type not in ACCEPTED[name]:
            raise PipelineError(
                f"column {name!r} is of type {type}; it must be {' or '.join(ACCEPTED[name])}: cast it"
            )
    return names


def joined(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> pa.RecordBatch:
    """Batches of a frame as one, in the types above."""
    table = pa.Table.from_batches(batches)
    columns = []
    for name, column in zip(names, table.columns, strict=True):
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if array.type != _ARROW[name]:
            array = array.cast(_ARROW[name])
        columns.append(array)
    return pa.RecordBatch.from_arrays(columns, names=list(names))


def column_of(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    """None where the frame does not have it, or has nothing in it."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        return None
    column = batch.column(index)
    return None if column.null_count == len(column) else column


def whole_numbers(column: pa.Array) -> tuple[Longs, Mask]:
    """Whole numbers, or instants in microseconds; and where there is one."""
    values = column.cast(pa.int64())
    return values.fill_null(0).to_numpy(zero_copy_only=False), given(column)


def given(column: pa.Array) -> Mask:
    """Where a column is not null."""
    present: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return present


def texts_of(column: pa.Array) -> list[str | None]:
    """Spark's strings may be any bytes; what is no text is shown as such, and is the name of nothing."""
    return [
        None if raw is None else raw.decode(errors="replace") for raw in column.cast(pa.binary()).to_pylist()
    ]


def row_of(batch: pa.RecordBatch, index: int) -> Row:
    """One row in Python's values, whatever is in it: it is told because something is wrong with it."""
    cells = {name: batch.column(at).slice(index, 1) for at, name in enumerate(batch.schema.names)}
    return {name: _cell(name, cell) for name, cell in cells.items()}


def _cell(name: str, cell: pa.Array) -> object:
    match name:
        case "topic":
            return texts_of(cell)[0]
        case "headers":
            found = cell.cast(_RAW_HEADERS)[0].as_py()
            return None if found is None else [_header(header) for header in found]
        case "deliver_at" | "timestamp":
            try:
                return cell[0].as_py()
            except (OverflowError, ValueError):  # Spark's years go beyond 9999 and before 1
                return f"{cell.cast(pa.int64())[0].as_py()} microseconds from 1970"
        case _:
            return cell[0].as_py()


def _header(header: dict[str, bytes | None] | None) -> dict[str, object] | None:
    if header is None:
        return None
    name = header["key"]
    return {"key": None if name is None else name.decode(errors="replace"), "value": header["value"]}


def _listed(names: Sequence[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(map(repr, names))


def _near(unknown: Sequence[str]) -> str:
    near = [found for name in unknown for found in get_close_matches(name.lower(), ACCEPTED, 1)]
    return f" (did you mean {', '.join(dict.fromkeys(near))}?)" if near else ""
