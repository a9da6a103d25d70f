"""Errors that another node has answered with, as the errors they were there."""

from __future__ import annotations

from goqueue.model import cluster_errors, errors
from goqueue.model.cluster_errors import NotLeader, OffsetNotAvailable, Unauthenticated
from goqueue.model.codes import Code
from goqueue.model.errors import (
    CorruptBatch,
    Detail,
    FencedLeaderEpoch,
    FetchSessionNotFound,
    GoQueueError,
    NotReady,
    OffsetOutOfRange,
    StorageError,
    TimedOut,
    TopicNotFound,
    UnknownLeaderEpoch,
    UnknownTopicId,
)

# By Kafka's codes, of what a replica may meet when it fetches; several errors share a code, and the first that fits is meant.
_OF_FETCH: dict[int, type[GoQueueError]] = {
    1: OffsetOutOfRange,
    2: CorruptBatch,
    3: TopicNotFound,
    5: NotLeader,
    6: NotLeader,
    7: TimedOut,
    8: NotReady,
    56: StorageError,
    58: Unauthenticated,
    70: FetchSessionNotFound,
    74: FencedLeaderEpoch,
    75: UnknownLeaderEpoch,
    78: OffsetNotAvailable,
    100: UnknownTopicId,
}


def error_told(code: str, sentence: str, details: dict[str, Detail]) -> GoQueueError:
    """By its code in HTTP's answers. One that only a newer node knows becomes a plain error."""
    return _made(_BY_CODE.get(code, GoQueueError), sentence, details)


def fetch_error(code: int, node: str, topic: str, partition: int) -> GoQueueError:
    kind = _OF_FETCH.get(code, GoQueueError)
    place = f"{topic}-{partition}" if topic else "everything"
    name = f" ({kind.code.value})" if code in _OF_FETCH else ""
    sentence = f"node {node!r} answers the fetch of {place} with Kafka's error {code}{name}"
    return _made(kind, sentence, {"node": node, "topic": topic, "partition": partition, "kafka_code": code})


def _made(kind: type[GoQueueError], sentence: str, details: dict[str, Detail]) -> GoQueueError:
    """Past the constructors, which make sentences of their own."""
    error = kind.__new__(kind, sentence)
    GoQueueError.__init__(error, sentence, **details)
    return error


def _by_code() -> dict[str, type[GoQueueError]]:
    found: dict[str, type[GoQueueError]] = {Code.INTERNAL.value: GoQueueError}
    for module in (errors, cluster_errors):
        for kind in vars(module).values():
            # `DataCorrupt` holds more than its details.
            if isinstance(kind, type) and issubclass(kind, GoQueueError) and kind is not errors.DataCorrupt:
                found.setdefault(kind.code.value, kind)
    return found


_BY_CODE = _by_code()
