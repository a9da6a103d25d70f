"""Every error a client can meet, and the one table that maps it to HTTP, gRPC and Kafka.

An expected error is a `GoQueueError` subclass with a stable code and the offending values. A broken
invariant is an `InvariantViolation`: the process stops rather than go on with state it cannot trust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Code(StrEnum):
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_NAME = "INVALID_NAME"
    INVALID_SETTING = "INVALID_SETTING"
    INVALID_BATCH = "INVALID_BATCH"
    CORRUPT_BATCH = "CORRUPT_BATCH"
    UNSUPPORTED_COMPRESSION = "UNSUPPORTED_COMPRESSION"
    ROUTE_NOT_FOUND = "ROUTE_NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND"
    PARTITION_NOT_FOUND = "PARTITION_NOT_FOUND"
    TOPIC_EXISTS = "TOPIC_EXISTS"
    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    OUT_OF_ORDER_SEQUENCE = "OUT_OF_ORDER_SEQUENCE"
    PRODUCER_FENCED = "PRODUCER_FENCED"
    DISK_FULL = "DISK_FULL"
    STORAGE_ERROR = "STORAGE_ERROR"
    PARTITION_OFFLINE = "PARTITION_OFFLINE"
    DATA_CORRUPT = "DATA_CORRUPT"
    TIMEOUT = "TIMEOUT"
    NOT_READY = "NOT_READY"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Wire:
    """How one code looks on each protocol."""

    http: int
    grpc: int
    kafka: int


WIRE: Mapping[Code, Wire] = {
    Code.INVALID_REQUEST: Wire(http=400, grpc=3, kafka=42),
    Code.INVALID_NAME: Wire(http=400, grpc=3, kafka=17),
    Code.INVALID_SETTING: Wire(http=400, grpc=3, kafka=40),
    Code.INVALID_BATCH: Wire(http=400, grpc=3, kafka=87),
    Code.CORRUPT_BATCH: Wire(http=400, grpc=3, kafka=2),
    Code.UNSUPPORTED_COMPRESSION: Wire(http=400, grpc=3, kafka=76),
    Code.ROUTE_NOT_FOUND: Wire(http=404, grpc=12, kafka=42),
    Code.METHOD_NOT_ALLOWED: Wire(http=405, grpc=12, kafka=42),
    Code.TOPIC_NOT_FOUND: Wire(http=404, grpc=5, kafka=3),
    Code.PARTITION_NOT_FOUND: Wire(http=404, grpc=5, kafka=3),
    Code.TOPIC_EXISTS: Wire(http=409, grpc=6, kafka=36),
    Code.OFFSET_OUT_OF_RANGE: Wire(http=416, grpc=11, kafka=1),
    Code.MESSAGE_TOO_LARGE: Wire(http=413, grpc=8, kafka=10),
    Code.REQUEST_TOO_LARGE: Wire(http=413, grpc=8, kafka=18),
    Code.LIMIT_EXCEEDED: Wire(http=429, grpc=8, kafka=44),
    Code.OUT_OF_ORDER_SEQUENCE: Wire(http=409, grpc=9, kafka=45),
    Code.PRODUCER_FENCED: Wire(http=409, grpc=9, kafka=47),
    Code.DISK_FULL: Wire(http=507, grpc=8, kafka=56),
    Code.STORAGE_ERROR: Wire(http=500, grpc=13, kafka=56),
    Code.PARTITION_OFFLINE: Wire(http=503, grpc=14, kafka=56),
    Code.DATA_CORRUPT: Wire(http=500, grpc=15, kafka=2),
    Code.TIMEOUT: Wire(http=504, grpc=4, kafka=7),
    Code.NOT_READY: Wire(http=503, grpc=14, kafka=8),
    Code.INTERNAL: Wire(http=500, grpc=13, kafka=-1),
}


Detail = str | int | float | bool | None | list[str] | list[int]


class GoQueueError(Exception):
    """An expected error: what was wrong, which value, and what would be right."""

    code: ClassVar[Code] = Code.INTERNAL
    retriable: ClassVar[bool] = False

    def __init__(self, sentence: str, **details: Detail) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.details = details


class InvalidRequest(GoQueueError):
    code = Code.INVALID_REQUEST


class InvalidName(GoQueueError):
    code = Code.INVALID_NAME


class InvalidSetting(GoQueueError):
    code = Code.INVALID_SETTING


class InvalidBatch(GoQueueError):
    """The bytes are not a well-formed record batch."""

    code = Code.INVALID_BATCH


class CorruptBatch(GoQueueError):
    """A batch arrived whose checksum does not match its bytes."""

    code = Code.CORRUPT_BATCH
    retriable = True


class UnsupportedCompression(GoQueueError):
    code = Code.UNSUPPORTED_COMPRESSION


class RouteNotFound(GoQueueError):
    code = Code.ROUTE_NOT_FOUND


class MethodNotAllowed(GoQueueError):
    code = Code.METHOD_NOT_ALLOWED


class TopicNotFound(GoQueueError):
    code = Code.TOPIC_NOT_FOUND

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} does not exist; create it with POST /topics", topic=topic)


class PartitionNotFound(GoQueueError):
    code = Code.PARTITION_NOT_FOUND

    def __init__(self, topic: str, partition: int, count: int) -> None:
        super().__init__(
            f"topic {topic!r} has no partition {partition}; it has partitions 0 to {count - 1}",
            topic=topic,
            partition=partition,
            partition_count=count,
        )


class TopicExists(GoQueueError):
    code = Code.TOPIC_EXISTS

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} exists already", topic=topic)


class OffsetOutOfRange(GoQueueError):
    code = Code.OFFSET_OUT_OF_RANGE

    def __init__(self, offset: int, *, earliest: int, latest: int) -> None:
        super().__init__(
            f"offset {offset} is outside the log, which holds offsets {earliest} to {latest} (exclusive)",
            offset=offset,
            earliest=earliest,
            latest=latest,
        )


class MessageTooLarge(GoQueueError):
    code = Code.MESSAGE_TOO_LARGE

    def __init__(self, what: str, size_bytes: int, bytes_max: int) -> None:
        super().__init__(
            f"{what} has {size_bytes} bytes; the limit is {bytes_max}",
            size_bytes=size_bytes,
            bytes_max=bytes_max,
        )


class RequestTooLarge(GoQueueError):
    code = Code.REQUEST_TOO_LARGE


class LimitExceeded(GoQueueError):
    code = Code.LIMIT_EXCEEDED
    retriable = True


class OutOfOrderSequence(GoQueueError):
    code = Code.OUT_OF_ORDER_SEQUENCE


class ProducerFenced(GoQueueError):
    code = Code.PRODUCER_FENCED


class DiskFull(GoQueueError):
    code = Code.DISK_FULL
    retriable = True


class StorageError(GoQueueError):
    """The disk refused; nothing of the request was acknowledged."""

    code = Code.STORAGE_ERROR
    retriable = True


class PartitionOffline(GoQueueError):
    """The partition stopped after a storage failure and takes no writes until it has been recovered."""

    code = Code.PARTITION_OFFLINE
    retriable = True


class DataCorrupt(GoQueueError):
    """Stored bytes fail their checksum. They are reported, never served and never skipped in silence."""

    code = Code.DATA_CORRUPT

    def __init__(self, *, start: int, end: int, file: str, position: int, reason: str) -> None:
        super().__init__(
            f"offsets {start} to {end} (exclusive) are damaged in {file} at byte {position}: {reason}; "
            f"reading goes on from offset {end}",
            start=start,
            end=end,
            file=file,
            position=position,
            reason=reason,
        )
        self.start = start
        self.end = end


class TimedOut(GoQueueError):
    """The outcome is unknown to the client; it is never reported as success."""

    code = Code.TIMEOUT
    retriable = True


class NotReady(GoQueueError):
    code = Code.NOT_READY
    retriable = True


class InvariantViolation(AssertionError):
    """Something that cannot happen did; the process must stop."""


def invariant(condition: bool, message: str) -> None:
    """Stop rather than continue with state that cannot be trusted."""
    if not condition:
        raise InvariantViolation(message)
