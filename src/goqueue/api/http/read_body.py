"""The query and the answer of a read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from goqueue.api.http.message_headers import priority_of
from goqueue.api.http.query import read_query
from goqueue.api.http.topic_bodies import LONG_MAX, Count
from goqueue.model.duration import format_instant, parse_duration_ms, parse_instant_ms
from goqueue.model.errors import InvalidRequest
from goqueue.model.priority import LANE_COUNT, NORMAL, PRIORITY_HEADER
from goqueue.model.record import Header, StoredRecord
from goqueue.node.requests import Isolation, ReadQuery, ReadResult

LIMIT_MAX = 1_000

_Offset = Annotated[int, Meta(ge=0, le=LONG_MAX)]
# Fewer forms than durations have elsewhere, so that the document can state the maximum as a pattern.
_WAIT = re.compile(r"(0|[1-9][0-9]{0,9})(ms|s|m)?")
_INSTANT = {"anyOf": [{"format": "date-time"}, {"pattern": "^[0-9]{1,15}$"}]}
_Text = str | None | list[str | None]
_instant = lru_cache(maxsize=4_096)(format_instant)  # records that were published together share a timestamp


class ReadParameters(Struct, frozen=True):
    offset: (
        Annotated[_Offset, Meta(description="The first offset to read. Not together with `timestamp`.")]
        | UnsetType
    ) = UNSET
    timestamp: (
        Annotated[
            str,
            Meta(
                description="Start at the first message at or after this instant: RFC 3339 or milliseconds since 1970.",
                extra_json_schema=_INSTANT,
            ),
        ]
        | UnsetType
    ) = UNSET
    to_offset: Annotated[_Offset, Meta(description="Exclusive.")] | UnsetType = UNSET
    to_timestamp: Annotated[str, Meta(description="Exclusive.", extra_json_schema=_INSTANT)] | UnsetType = (
        UNSET
    )
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX)] = 100
    isolation: Isolation = Isolation.READ_COMMITTED
    wait: (
        Annotated[
            str,
            Meta(
                description="How long an empty answer may be delayed until there is data: 250ms, 30s, 1m or "
                "milliseconds. When the time is up the answer is an empty 200."
            ),
        ]
        | UnsetType
    ) = UNSET


class StoredMessage(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """Bytes that are not UTF-8 are under the names with `_base64` instead. A header that occurs several times is a
    list. A value of null is a tombstone."""

    offset: Count
    timestamp: Annotated[
        str, Meta(description="RFC 3339; milliseconds since 1970 where that is beyond the year 9999.")
    ]
    key: str | UnsetType | None
    value: str | UnsetType | None
    headers: dict[str, _Text]
    priority: Annotated[int, Meta(ge=0, lt=LANE_COUNT)] = NORMAL
    key_base64: bytes | UnsetType = UNSET
    value_base64: bytes | UnsetType = UNSET
    headers_base64: dict[str, bytes | list[bytes | None] | None] | UnsetType = UNSET


class Messages(Struct, frozen=True, forbid_unknown_fields=True):
    messages: list[StoredMessage]
    next_offset: Annotated[int, Meta(ge=0, description="Where to go on reading.")]
    high_watermark: Count
    last_stable_offset: Count


def parse_read_query(raw: bytes, wait_ms_max: int) -> ReadQuery:
    if not raw:
        return _EVERYTHING
    asked = read_query(raw, ReadParameters)
    if asked.offset is not UNSET and asked.timestamp is not UNSET:
        raise InvalidRequest("give offset or timestamp, not both")
    return ReadQuery(
        offset=None if isinstance(asked.offset, UnsetType) else asked.offset,
        timestamp_ms=_parse_instant("timestamp", asked.timestamp),
        to_offset=None if isinstance(asked.to_offset, UnsetType) else asked.to_offset,
        to_timestamp_ms=_parse_instant("to_timestamp", asked.to_timestamp),
        limit=asked.limit,
        wait_ms=_parse_wait(asked.wait, wait_ms_max),
        isolation=asked.isolation,
    )


_EVERYTHING = ReadQuery()


def messages_body(result: ReadResult) -> Messages:
    return Messages(
        stored_messages(result.records), result.next_offset, result.high_watermark, result.last_stable_offset
    )


def stored_messages(records: Sequence[StoredRecord]) -> list[StoredMessage]:
    """Most are text altogether: only if one is not, they are looked at one by one."""
    try:
        return [
            StoredMessage(
                record.offset,
                _instant(record.timestamp_ms),
                None if record.key is None else record.key.decode(),
                None if record.value is None else record.value.decode(),
                *(_plain(record.headers) or (_texts(record.headers), priority_of(record.headers))),
            )
            for record in records
        ]
    except UnicodeDecodeError:
        return [_any_message(record) for record in records]


# What most messages have of headers: none, or their priority alone.
_PLAIN: dict[tuple[Header, ...], tuple[dict[str, _Text], int]] = {
    (): ({}, NORMAL),
    **{
        ((PRIORITY_HEADER, b"%d" % lane),): ({PRIORITY_HEADER: str(lane)}, lane) for lane in range(LANE_COUNT)
    },
}
_plain = _PLAIN.get


def _any_message(record: StoredRecord) -> StoredMessage:
    key, key_base64 = _text_or_bytes(record.key)
    value, value_base64 = _text_or_bytes(record.value)
    binary = {name for name, content in record.headers if isinstance(_text_or_bytes(content)[1], bytes)}
    return StoredMessage(
        record.offset,
        _instant(record.timestamp_ms),
        key,
        value,
        _texts(tuple(header for header in record.headers if header[0] not in binary)),
        priority_of(record.headers),
        key_base64,
        value_base64,
        _contents(tuple(header for header in record.headers if header[0] in binary)) if binary else UNSET,
    )


def _text_or_bytes(content: bytes | None) -> tuple[str | UnsetType | None, bytes | UnsetType]:
    if content is None:
        return None, UNSET
    try:
        return content.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, content


def _texts(headers: tuple[Header, ...]) -> dict[str, _Text]:
    values: dict[str, list[str | None]] = {}
    for name, content in headers:
        values.setdefault(name, []).append(None if content is None else content.decode())
    return {name: several[0] if len(several) == 1 else several for name, several in values.items()}


def _contents(headers: tuple[Header, ...]) -> dict[str, bytes | list[bytes | None] | None]:
    values: dict[str, list[bytes | None]] = {}
    for name, content in headers:
        values.setdefault(name, []).append(content)
    return {name: several[0] if len(several) == 1 else several for name, several in values.items()}


def _parse_instant(name: str, text: str | UnsetType) -> int | None:
    """Milliseconds; an instant before 1970 is as good as 1970, because no record is older."""
    if isinstance(text, UnsetType):
        return None
    try:
        return max(0, parse_instant_ms(text))
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"query parameter {name!r} is wrong: {error}", parameter=name) from None


def _parse_wait(text: str | UnsetType, wait_ms_max: int) -> int:
    if isinstance(text, UnsetType):
        return 0
    if not _WAIT.fullmatch(text):
        raise InvalidRequest(f"wait is {text!r}; write 250ms, 30s, 1m or milliseconds", parameter="wait")
    wait_ms = parse_duration_ms(text)
    if wait_ms > wait_ms_max:
        raise InvalidRequest(
            f"wait is {text}; it may be at most {wait_ms_max}ms", parameter="wait", wait_ms_max=wait_ms_max
        )
    return wait_ms
