"""What is on its way to one broker: batches that wait, and requests that are not answered yet.

A request holds at most one batch of a partition, and at most five are under way: so no more than five batches of a partition
are ever unanswered, which is as many as a broker remembers to recognise those that come twice.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from goqueue.client.kafka.brokers import Brokers, Place
from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.connection import Address, Connection
from goqueue.client.kafka.errors import KafkaError, NotUnderstood, refused
from goqueue.client.kafka.layouts import requests

REQUEST_COUNT_MAX = 5
REQUEST_BYTES_MIN = 512 * 1024  # worth a request of its own
REQUEST_BYTES_MAX = 8 * 1024 * 1024  # below every broker's limit; a single larger batch goes alone
NO_ACKS = 0
_TRANSACTIONAL_FROM = 12  # KIP-890: the partition joins the transaction with its first batch
_R = requests("produce")


class Outgoing(NamedTuple):
    """A batch and its turn among all batches of a sender."""

    turn: int
    place: Place
    batch: bytes


class Lane:
    """Of one leader."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.waiting_bytes = 0
        self._waiting: dict[Place, deque[Outgoing]] = {}  # those whose turn it is first
        self._under_way: deque[list[Outgoing]] = deque()
        self._connection: Connection | None = None

    def add(self, one: Outgoing) -> None:
        self._waiting.setdefault(one.place, deque()).append(one)
        self.waiting_bytes += len(one.batch)

    @property
    def is_busy(self) -> bool:
        """Requests are to be answered."""
        return bool(self._under_way)

    @property
    def oldest_turn(self) -> int:
        """Of the requests that are to be answered."""
        return self._under_way[0][0].turn

    @property
    def has_room(self) -> bool:
        return len(self._under_way) < REQUEST_COUNT_MAX

    @property
    def has_answer(self) -> bool:
        """One can be received without waiting."""
        return self._connection is not None and self.is_busy and self._connection.has_input()

    def transmit(
        self, brokers: Brokers, transactional_id: str | None, acks: int, timeout_ms: int
    ) -> list[Outgoing]:
        """The next request; gives what nobody will answer for."""
        request = self._next_request()
        self._under_way.append(request)  # before anything can fail: nothing is lost
        if self._connection is None:
            self._connection = brokers.borrow(self.address)
        topics: dict[str, list[Any]] = {}
        for one in request:
            topic, partition = one.place
            records = [memoryview(one.batch)]
            topics.setdefault(topic, []).append(_R.PartitionProduceData(index=partition, records=records))
        self._connection.send(
            "produce",
            least_version=_TRANSACTIONAL_FROM if transactional_id is not None else 0,
            is_answered=acks != NO_ACKS,
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[_R.TopicProduceData(name=name, partition_data=ones) for name, ones in topics.items()],
        )
        return self._under_way.pop() if acks == NO_ACKS else []

    def receive(self) -> list[tuple[Outgoing, KafkaError | None]]:
        """The batches of the oldest request, each with what the broker has against it."""
        if self._connection is None:
            return []
        answer = self._connection.receive()
        told = {
            (topic.name, one.index): one for topic in answer.responses for one in topic.partition_responses
        }
        missing = [one.place for one in self._under_way[0] if one.place not in told]
        if missing:
            raise NotUnderstood(f"{self.address} says nothing of the batch for {missing[0]}")
        return [(one, _verdict(one.place, told[one.place])) for one in self._under_way.popleft()]

    def take_all(self) -> list[Outgoing]:
        """Everything that is not answered for, under way or not."""
        everything = [one for request in self._under_way for one in request]
        everything += [one for queue in self._waiting.values() for one in queue]
        self._under_way.clear()
        self._waiting.clear()
        self.waiting_bytes = 0
        return everything

    def close(self, brokers: Brokers, *, failed: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if failed:
            connection.close()
        else:
            brokers.give_back(connection)

    def _next_request(self) -> list[Outgoing]:
        request: list[Outgoing] = []
        size = 0
        for place in list(self._waiting):
            queue = self._waiting[place]
            if request and size + len(queue[0].batch) > REQUEST_BYTES_MAX:
                break
            one = queue.popleft()
            request.append(one)
            size += len(one.batch)
            del self._waiting[place]
            if queue:  # behind the others
                self._waiting[place] = queue
        self.waiting_bytes -= size
        return request


def _verdict(place: Place, told: Any) -> KafkaError | None:  # a class that is made at run time
    """A batch that was stored before is stored."""
    if told.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return None
    return refused(told.error_code, f"producing to {place[0]}-{place[1]}", told.error_message)
