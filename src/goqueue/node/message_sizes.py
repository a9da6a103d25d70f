"""Whether a message fits, and how many of them fit a batch."""

from __future__ import annotations

from typing import Final

from goqueue.model.errors import InvalidRequest, MessageTooLarge
from goqueue.model.limits import Limits
from goqueue.model.record import NewRecord
from goqueue.model.settings import TopicSettings

BATCH_OVERHEAD_BYTES: Final = 64
_RECORD_OVERHEAD_BYTES: Final = 32  # more than the varints and the attributes byte of any record
_HEADER_OVERHEAD_BYTES: Final = 10  # two lengths of up to five bytes


def check_record(record: NewRecord, settings: TopicSettings, limits: Limits) -> None:
    """Raise where a topic would not take it from a publisher."""
    check_size(record, settings.max_message_bytes - BATCH_OVERHEAD_BYTES, limits)


def check_size(record: NewRecord, bytes_max: int, limits: Limits) -> None:
    key, value = record.key, record.value
    size = _RECORD_OVERHEAD_BYTES + (len(value) if value is not None else 0)
    if key is not None:
        size += len(key)
        if len(key) > limits.key_bytes_max:
            raise MessageTooLarge("the key", len(key), limits.key_bytes_max)
    if record.headers:
        header_bytes = _header_bytes(record)
        size += header_bytes + _HEADER_OVERHEAD_BYTES * len(record.headers)
        if len(record.headers) > limits.header_count_max:
            raise InvalidRequest(
                f"a message has at most {limits.header_count_max} headers, not {len(record.headers)}",
                header_count=len(record.headers),
            )
        if header_bytes > limits.header_bytes_max:
            raise MessageTooLarge("the headers together", header_bytes, limits.header_bytes_max)
    if size > bytes_max:
        raise MessageTooLarge("the message", size, bytes_max)


def _header_bytes(record: NewRecord) -> int:
    return sum(
        (len(name) if name.isascii() else len(name.encode())) + len(content or b"")
        for name, content in record.headers
    )


def chunks_of(records: list[NewRecord], bytes_max: int) -> list[list[NewRecord]]:
    """Runs of records that fit a batch; each record alone does, as was checked."""
    chunks: list[list[NewRecord]] = []
    start, size = 0, 0
    for at, record in enumerate(records):
        more = _RECORD_OVERHEAD_BYTES + len(record.value or b"") + len(record.key or b"")
        if record.headers:
            more += _header_bytes(record) + _HEADER_OVERHEAD_BYTES * len(record.headers)
        if size + more > bytes_max and at > start:
            chunks.append(records[start:at])
            start, size = at, 0
        size += more
    chunks.append(records[start:])
    return chunks
