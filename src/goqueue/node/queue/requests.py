"""What the use cases of the queue take and give."""

from __future__ import annotations

from msgspec import Struct

from goqueue.model.record import StoredRecord


class Message(Struct, frozen=True, gc=False):
    """A record for somebody."""

    topic: str
    partition: int
    record: StoredRecord


class Delivered(Message, frozen=True, gc=False):
    """It is in somebody's hands, until the deadline or until the receipt comes back."""

    lane: int
    deliveries: int
    deadline_ms: int
    receipt: str


class Finished(Struct, frozen=True, gc=False):
    """An acknowledged or rejected record, and where that leaves its group."""

    topic: str
    partition: int
    offset: int
    committed_offset: int
    in_flight_count: int


class Returned(Struct, frozen=True):
    """A nacked record: it will be given again, or it is dead."""

    topic: str
    partition: int
    offset: int
    committed_offset: int
    in_flight_count: int
    is_dead: bool
    deliveries: int
    visible_ms: int


class Prolonged(Struct, frozen=True):
    topic: str
    partition: int
    offset: int
    committed_offset: int
    in_flight_count: int
    deadline_ms: int


class QueueStats(Struct, frozen=True):
    """Of one group in one partition."""

    topic: str
    partition: int
    group: str
    committed_offset: int
    end_offset: int
    in_flight_count: int
    waiting_count: int
    settled_count: int
    dead_count: int
