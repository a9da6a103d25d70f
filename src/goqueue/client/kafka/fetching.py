"""A span of a partition as whole batches: the request for the next stretch is on the wire while the caller works on this one.

Only the headers of batches are looked at: how long each is, to drop a torn one at the end, and where the last one ends, which
is where the next request begins. So whatever breaks in between, reading goes on with the byte after the last one given.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from goqueue.client.kafka.brokers import Brokers
from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.connection import ANSWER_BYTES_MAX, Connection
from goqueue.client.kafka.errors import (
    KafkaError,
    NotUnderstood,
    OffsetOutOfRange,
    Unreachable,
    check,
    unfit,
)
from goqueue.client.kafka.layouts import requests
from goqueue.client.kafka.patience import Patience
from goqueue.log.batch import HEADER_BYTES, LENGTH_OVERHEAD, frame_problem, read_header

BYTES_MAX = 1024 * 1024  # stays in the processor's cache until it is worked on; 8 MiB are slower
_WAIT_MS_MAX = 500  # that a broker holds a request for which there is nothing yet
_WAITS_PER_TIMEOUT = 4  # at least: its answer must come before the connection is given up
_BATCH_BYTES_MAX = ANSWER_BYTES_MAX // 2
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_R = requests("fetch")


class Fetched(NamedTuple):
    """Whole batches in the order of their offsets, and (producer id, first offset) of aborted transactions among them. The bytes
    are good until the next are asked for."""

    data: memoryview
    aborted: tuple[tuple[int, int], ...]


class SpanReader:
    """Reads offsets [start, end) of one partition. Of one thread, as the connection is that it borrows."""

    def __init__(
        self,
        brokers: Brokers,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        committed: bool,
        bytes_max: int,
    ) -> None:
        self._brokers = brokers
        self._topic = topic
        self._partition = partition
        self._next = start
        self._end = end
        self._isolation_level = 1 if committed else 0
        self._bytes_max = bytes_max
        self._wait_ms = min(_WAIT_MS_MAX, int(brokers.timeout_s * 1_000 / _WAITS_PER_TIMEOUT))
        self._connection: Connection | None = None
        self._patience = Patience(brokers.timeout_s)

    def chunks(self) -> Iterator[Fetched]:
        try:
            while self._next < self._end:
                self._patience.renew()
                yield self._advance()
        finally:
            self._let_go()

    def _advance(self) -> Fetched:
        """The next batches, however long they take to come within the patience."""
        while True:
            try:
                connection = self._connection or self._connect()
                if not connection.waiting_count:
                    self._ask(connection)
                fetched = self._received(connection.receive())
                if fetched is None:
                    continue
                if self._next < self._end:
                    self._ask(connection)
                return fetched
            except KafkaError as error:
                self._let_go(failed=isinstance(error, Unreachable | NotUnderstood))
                self._brokers.forget(self._topic)
                self._patience.pause(error)

    def _connect(self) -> Connection:
        address = self._brokers.leader(self._topic, self._partition)
        self._connection = self._brokers.borrow(address)
        return self._connection

    def _let_go(self, *, failed: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if failed:
            connection.close()
        else:
            self._brokers.give_back(connection)

    def _ask(self, connection: Connection) -> None:
        wanted = _R.FetchPartition(
            partition=self._partition, fetch_offset=self._next, partition_max_bytes=self._bytes_max
        )
        connection.send(
            "fetch",
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=self._bytes_max,
            isolation_level=self._isolation_level,
            topics=[_R.FetchTopic(topic=self._topic, partitions=[wanted])],
        )

    def _received(self, answer: Any) -> Fetched | None:  # a class that is made at run time
        """What came, with the next offset moved behind it; None if nothing whole did."""
        check(answer.error_code, self._what())
        parts = [(topic.topic, part) for topic in answer.responses for part in topic.partitions]
        if [(topic, part.partition_index) for topic, part in parts] != [(self._topic, self._partition)]:
            raise NotUnderstood(f"{self._what()}: the answer is about something else")
        ((_, part),) = parts
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRange(
                self._topic, self._partition, self._next, part.log_start_offset, part.high_watermark
            )
        check(part.error_code, self._what())
        data = memoryview(part.records or b"")
        size, last_at = whole_batches(data)
        if size == 0:
            self._stand_still(data, part)
            return None
        self._next = self._behind(data, last_at)
        aborted = tuple((one.producer_id, one.first_offset) for one in part.aborted_transactions or ())
        return Fetched(data[:size], aborted)

    def _behind(self, data: memoryview, last_at: int) -> int:
        header = read_header(data, last_at)
        problem = frame_problem(header)
        if problem is None and header.end_offset <= self._next:
            problem = f"the batches end at {header.end_offset}"
        if problem is not None:
            raise NotUnderstood(f"{self._what()}: {problem}")
        return header.end_offset

    def _stand_still(self, data: memoryview, part: Any) -> None:  # as above
        """A batch that did not fit is asked for again with more room; where there is nothing, wait in the broker."""
        if data:
            known = (
                _LENGTH.unpack_from(data, _LENGTH_AT)[0] + LENGTH_OVERHEAD
                if len(data) >= LENGTH_OVERHEAD
                else 0
            )
            self._bytes_max = max(2 * self._bytes_max, known)
            if self._bytes_max > _BATCH_BYTES_MAX:
                raise NotUnderstood(
                    f"{self._what()}: a batch has more than {_BATCH_BYTES_MAX} bytes, the most that is read"
                )
        elif self._patience.is_over:
            raise unfit(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self._what()}: nothing came for {self._brokers.timeout_s:g} s, though {self._end} is the end; the broker "
                f"says log start {part.log_start_offset}, high watermark {part.high_watermark}, "
                f"last stable offset {part.last_stable_offset}",
            )

    def _what(self) -> str:
        return f"fetching {self._topic}-{self._partition} from offset {self._next}"


def whole_batches(data: memoryview) -> tuple[int, int]:
    """How many of the bytes are whole batches, and where the last of them begins."""
    at = last_at = 0
    end = len(data)
    while end - at >= LENGTH_OVERHEAD:
        size = _LENGTH.unpack_from(data, at + _LENGTH_AT)[0] + LENGTH_OVERHEAD
        if size < HEADER_BYTES:
            raise NotUnderstood(f"a batch that claims to have {size} bytes; it has {HEADER_BYTES} at least")
        if size > end - at:
            break
        last_at = at
        at += size
    return at, last_at
