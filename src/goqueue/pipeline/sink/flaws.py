"""What can be wrong with a row, found for a whole window of rows at once.

A flaw is one byte for each row; 0 is a good one. Where a row has several, the first in the order of `Flaw` counts.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from goqueue.model.delay import DELIVER_AT_HEADER, parse_deliver_at_ms
from goqueue.model.errors import InvalidDelay
from goqueue.model.priority import LANE_COUNT
from goqueue.pipeline.sink.rows import Longs, Mask, column_of, whole_numbers

Flaws = npt.NDArray[np.uint8]
US_PER_MS: Final = 1_000
_SHOWN_MAX: Final = 64


class Flaw(IntEnum):
    NONE = 0
    NO_TOPIC = 1
    UNKNOWN_TOPIC = 2
    PARTITION = 3
    PRIORITY = 4
    HEADERS = 5
    DELIVER_AT = 6
    TIMESTAMP = 7
    TOO_LARGE = 8
    OTHER = 9

    @property
    def reason(self) -> str:
        """As counts and headers call it."""
        return _REASONS[self]


_REASONS: Final = {
    Flaw.NONE: "",
    Flaw.NO_TOPIC: "no topic",
    Flaw.UNKNOWN_TOPIC: "unknown topic",
    Flaw.PARTITION: "partition out of range",
    Flaw.PRIORITY: "priority out of range",
    Flaw.HEADERS: "bad headers",
    Flaw.DELIVER_AT: "deliver_at cannot be kept",
    Flaw.TIMESTAMP: "timestamp out of range",
    Flaw.TOO_LARGE: "too large",
    Flaw.OTHER: "cannot be encoded",
}


def mark(flaws: Flaws, where: Mask, flaw: Flaw) -> None:
    """Rows that have no flaw yet."""
    flaws[where & (flaws == Flaw.NONE)] = flaw


def mark_priorities(flaws: Flaws, batch: pa.RecordBatch) -> None:
    column = column_of(batch, "priority")
    if column is not None:
        priorities, is_given = whole_numbers(column)
        mark(flaws, is_given & ((priorities < 0) | (priorities >= LANE_COUNT)), Flaw.PRIORITY)


def mark_headers(flaws: Flaws, batch: pa.RecordBatch) -> None:
    """A header has a name; the list may be null, a header in it may not."""
    column = column_of(batch, "headers")
    if column is None:
        return
    is_nameless = pc.is_null(pc.struct_field(column.flatten(), "key"))
    if pc.any(is_nameless).as_py():
        rows = pc.list_parent_indices(column).filter(is_nameless).to_numpy(zero_copy_only=False)
        mark(flaws, _mask(len(batch), rows), Flaw.HEADERS)


def mark_delays(
    flaws: Flaws, batch: pa.RecordBatch, *, now_ms: int, delay_ms_max: Longs, is_transactional: bool
) -> None:
    """A delayed record cannot be part of a transaction; without one it may wait as long as its topic lets it."""
    column, headers = column_of(batch, "deliver_at"), column_of(batch, "headers")
    if column is None and headers is None:
        return
    latest_ms = np.full(len(batch), now_ms, np.int64) if is_transactional else now_ms + delay_ms_max
    if column is not None:
        due_us, is_given = whole_numbers(column)
        mark(flaws, is_given & ((due_us < 0) | (_up_to_ms(due_us) > latest_ms)), Flaw.DELIVER_AT)
    if headers is None:
        return
    elements = headers.flatten()
    is_due = pc.fill_null(pc.equal(pc.struct_field(elements, "key"), DELIVER_AT_HEADER), False)
    if not pc.any(is_due).as_py():
        return
    rows = pc.list_parent_indices(headers).filter(is_due).to_pylist()
    texts = pc.struct_field(elements, "value").filter(is_due).to_pylist()
    for row, text in zip(rows, texts, strict=True):
        try:
            due_ms = parse_deliver_at_ms((text or b"").decode("utf-8", "replace"))
        except InvalidDelay:
            flaws[row] = flaws[row] or Flaw.HEADERS
        else:
            if due_ms > latest_ms[row]:
                flaws[row] = flaws[row] or Flaw.DELIVER_AT


def mark_timestamps(
    flaws: Flaws, batch: pa.RecordBatch, *, now_ms: int, before_ms_max: Longs, after_ms_max: Longs
) -> None:
    """How far from now the topic lets a record's own time be."""
    column = column_of(batch, "timestamp")
    if column is None:
        return
    at_us, is_given = whole_numbers(column)
    past_ms = now_ms - at_us // US_PER_MS
    is_wrong = (at_us < 0) | (past_ms > before_ms_max) | (-past_ms > after_ms_max)
    mark(flaws, is_given & is_wrong, Flaw.TIMESTAMP)


def counts_by_reason(flaws: Flaws) -> dict[str, int]:
    counts = np.bincount(flaws, minlength=len(Flaw))
    return {flaw.reason: int(counts[flaw]) for flaw in Flaw if flaw and counts[flaw]}


def shown(value: object) -> str:
    """A value in an error: short, whatever it is."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}... ({len(text)} characters)"


def _mask(count: int, rows: npt.NDArray[np.int64]) -> Mask:
    found = np.zeros(count, np.bool_)
    found[rows] = True
    return found


def _up_to_ms(us: Longs) -> Longs:
    """Rounded up: a record may be late, never early."""
    return -(-us // US_PER_MS)
