"""Delayed records that are due in a moment, in memory, so that nothing has to be read when their time has come. Those with a
short delay stay here from the start; the others are read ahead, in the order in which the log has them."""

from __future__ import annotations

from typing import Final

from goqueue.core.schedule.events import Message
from goqueue.model.record import NewRecord

NEAR_MS: Final = 10_000
_BYTES_MAX: Final = 64 * 1024 * 1024  # of all schedules of a node; what finds no room is read when it is due
_RECORD_OVERHEAD_BYTES: Final = 32
_HEADER_OVERHEAD_BYTES: Final = 10
_OBJECT_BYTES: Final = 400  # of Python, beside the content


class Room:
    """How much memory is taken."""

    def __init__(self) -> None:
        self.used_bytes = 0


class Nearby:
    """Of one schedule."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._messages: dict[int, Message] = {}
        self._is_closed = False

    def __contains__(self, id: int) -> bool:
        return id in self._messages

    def get(self, id: int) -> Message | None:
        return self._messages.get(id)

    def keep(self, id: int, message: Message) -> bool:
        """False where there is no room."""
        if self._is_closed:
            return False
        size = size_of(message.record) + _OBJECT_BYTES
        if self._room.used_bytes + size > _BYTES_MAX:
            return False
        if id not in self._messages:
            self._room.used_bytes += size
            self._messages[id] = message
        return True

    def drop(self, id: int) -> None:
        message = self._messages.pop(id, None)
        if message is not None:
            self._room.used_bytes -= size_of(message.record) + _OBJECT_BYTES

    def close(self) -> None:
        """The schedule is gone; who still works on it keeps nothing any more."""
        self._is_closed = True
        for id in list(self._messages):
            self.drop(id)


def size_of(record: NewRecord) -> int:
    """About what it takes in a batch, and not less."""
    size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _HEADER_OVERHEAD_BYTES + len(name.encode()) + len(value or b"")
    return size
