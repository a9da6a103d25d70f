"""A dead letter: the record as it was, and behind its own headers those that tell where it was and why it is here.

Only the last block of such headers counts. A dead letter that dies again gets a second one, and the way back takes one
off at a time.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from goqueue.core.lease.events import Letter, Moving
from goqueue.model.dead_letter_headers import (
    ATTEMPTS,
    CONSUMER,
    ERROR,
    FIRST_DELIVERY,
    GROUP,
    LAST_DELIVERY,
    MISSING,
    OFFSET,
    PARTITION,
    PREFIX,
    REASON,
    REDRIVE_COUNT,
    TIMESTAMP,
    TOPIC,
)
from goqueue.model.duration import format_instant
from goqueue.model.record import Header, NewRecord, StoredRecord

__all__ = [
    "ATTEMPTS",
    "GROUP",
    "MISSING",
    "OFFSET",
    "PARTITION",
    "REASON",
    "TOPIC",
    "Origin",
    "content_bytes",
    "dead_letter",
    "origin_of",
    "redrive_count",
    "sent_back",
]

_GONE: Final = "the record was gone from its log, or damaged, before it could be copied"
_DIGITS_MAX: Final = 19


class Origin(Struct, frozen=True):
    """Where a dead letter comes from, and why it is one."""

    topic: str
    partition: int
    offset: int
    group: str
    reason: str
    error: str


def dead_letter(
    topic: str, partition: int, record: StoredRecord | None, letter: Letter, move: Moving
) -> NewRecord:
    """Without a body where the record is gone."""
    told = [(TOPIC, topic), (PARTITION, str(partition)), (OFFSET, str(letter.offset))]
    if record is not None:
        told.append((TIMESTAMP, format_instant(record.timestamp_ms)))
    told += [
        (ATTEMPTS, str(letter.deliveries)),
        (FIRST_DELIVERY, format_instant(letter.first_ms)),
        (LAST_DELIVERY, format_instant(letter.last_ms)),
        (GROUP, move.group_id),
        (CONSUMER, letter.member),
        (REASON, move.cause),
        (ERROR, move.reason),
    ]
    if record is None:
        return NewRecord(None, b"", _headers([*told, (MISSING, _GONE)]))
    return NewRecord(record.key, record.value, record.headers + _headers(told))


def origin_of(record: StoredRecord) -> Origin | None:
    """None where it is no dead letter, or only looks like one."""
    start = _block_start(record)
    if start is None:
        return None
    told = {name: _text(value) for name, value in record.headers[start:]}
    partition, offset = _number(told.get(PARTITION)), _number(told.get(OFFSET))
    if partition is None or offset is None or MISSING in told:
        return None
    return Origin(
        told[TOPIC], partition, offset, told.get(GROUP, ""), told.get(REASON, ""), told.get(ERROR, "")
    )


def redrive_count(record: StoredRecord) -> int:
    """How often it was sent back already."""
    counts = [_number(_text(value)) or 0 for name, value in record.headers if name == REDRIVE_COUNT]
    return counts[-1] if counts else 0


def sent_back(record: StoredRecord) -> NewRecord:
    """The record as it was before it died, and how often that has happened."""
    start = _block_start(record)
    end = len(record.headers) if start is None else start
    kept = [header for header in record.headers[:end] if header[0] != REDRIVE_COUNT]
    kept += [
        header
        for header in record.headers[end:]
        if not header[0].startswith(PREFIX) and header[0] != REDRIVE_COUNT
    ]
    count = (REDRIVE_COUNT, str(redrive_count(record) + 1).encode())
    return NewRecord(record.key, record.value, (*kept, count))


def content_bytes(record: NewRecord) -> int:
    """What somebody wrote: key, value and headers, without what the format adds."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _block_start(record: StoredRecord) -> int | None:
    starts = [at for at, (name, _) in enumerate(record.headers) if name == TOPIC]
    return starts[-1] if starts else None


def _headers(told: list[tuple[str, str]]) -> tuple[Header, ...]:
    return tuple((name, text.encode(errors="replace")) for name, text in told)


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def _number(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if text is not None and is_number else None
