"""Bad rows as dead letters: the row as far as it can be stored, and behind its own headers what was wrong with it.

The headers are those that the broker gives its dead letters (docs/adr/0023-dead-letters.md). A row has never had an offset, so
it is none that could be sent back as it is: whoever mends it writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from goqueue.model.dead_letter_headers import ERROR, GROUP, MISSING, PARTITION, REASON, TIMESTAMP, TOPIC
from goqueue.model.delay import DELIVER_AT_HEADER
from goqueue.model.duration import format_instant
from goqueue.model.record import Header, NewRecord
from goqueue.pipeline.sink.rows import Row

_RECORD_OVERHEAD_BYTES: Final = 32
_HEADER_OVERHEAD_BYTES: Final = 10
_NO_VALUE: Final = "the value is too large for this topic, too"
_NO_CONTENT: Final = "key, value and headers are too large for this topic, too"


def dead_letter(
    row: Row, topic: str, *, reason: str, error: str, writer: str, now_ms: int, bytes_max: int
) -> NewRecord:
    """`bytes_max` is what a record of the dead letter topic may have."""
    told = [(TOPIC, topic)]
    if row.get("partition") is not None:
        told.append((PARTITION, str(row["partition"])))
    told += [(TIMESTAMP, format_instant(now_ms)), (GROUP, writer), (REASON, reason), (ERROR, error)]
    block = _headers(told)
    key, value, headers = row.get("key"), row["value"], _own_headers(row)
    whole = NewRecord(key, value, headers + block)
    if record_bytes(whole) <= bytes_max:
        return whole
    slim = NewRecord(key, b"", (*headers, *block, (MISSING, _NO_VALUE.encode())))
    if record_bytes(slim) <= bytes_max:
        return slim
    return NewRecord(None, b"", (*block, (MISSING, _NO_CONTENT.encode())))


def record_bytes(record: NewRecord) -> int:
    """At least what it takes in a batch."""
    headers = sum(
        _HEADER_OVERHEAD_BYTES + len(name.encode()) + len(value or b"") for name, value in record.headers
    )
    return _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def runs(records: Sequence[NewRecord], bytes_max: int) -> Iterator[Sequence[NewRecord]]:
    """Those that fit one batch together; one that does not fit alone is a run of its own."""
    start, size = 0, 0
    for at, record in enumerate(records):
        more = record_bytes(record)
        if size + more > bytes_max and at > start:
            yield records[start:at]
            start, size = at, 0
        size += more
    yield records[start:]


def _own_headers(row: Row) -> tuple[Header, ...]:
    """Without those that have no name, and without a due time: a transaction has no delayed records."""
    found = []
    for header in row.get("headers") or ():
        name = header["key"] if header is not None else None
        if name is not None and name != DELIVER_AT_HEADER:
            found.append((name, header["value"]))
    return tuple(found)


def _headers(told: Sequence[tuple[str, str]]) -> tuple[Header, ...]:
    return tuple((name, text.encode(errors="replace")) for name, text in told)
