"""What clients did and what they were told, in order: one JSON object a line.

Every process of a run writes a file of its own; together, ordered by time, they are the history that is checked. The clock is
the machine's monotonic one, which all processes share, whatever network they are in.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
from msgspec import Struct


class Phase(StrEnum):
    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"  # it certainly did not happen
    UNKNOWN = "unknown"  # it may have happened, or may happen yet


class Op(StrEnum):
    PUBLISH = "publish"
    POLL = "poll"  # what a reader or a member of a group was given
    TAKE = "take"  # what a member of a queue was given
    ASSIGN = "assign"  # partitions came to a member, or a reader began at a position
    REVOKE = "revoke"
    COMMIT = "commit"  # positions of a group
    COMMITTED = "committed"  # positions of a group, as the broker says them
    TRANSACT = "transact"  # a transaction: its outputs and the positions of its input
    ACK = "ack"
    NACK = "nack"
    FINAL = "final"  # a whole partition, read when all was over; the offset is its end
    OPEN = "open"  # a partition in which a transaction has no end when all was over; readers of committed records stop at the offset
    DRAIN = "drain"  # a consumer has worked off everything, or has given up; the note says what is left
    WORK = "work"  # all that one client does; it begins with the run and ends with it
    FAULT = "fault"


class Place(NamedTuple):
    """A record, by where it is. In a position the value is empty and the offset is that of the next record."""

    partition: int
    offset: int
    value: str = ""


class Event(Struct, frozen=True, omit_defaults=True):
    at_us: int
    load: str
    process: str
    op: Op
    phase: Phase
    number: int = 0  # of the operation, in its process; an invocation and its outcome have the same
    topic: str = ""
    group: str = ""
    partition: int = -1
    offset: int = -1
    value: str = ""
    places: tuple[Place, ...] = ()
    values: tuple[str, ...] = ()  # what a transaction writes
    wall_ms: int = 0  # since 1970, where a due time has to be compared with it
    due_ms: int = 0
    lease_ms: int = 0  # how long what was taken belongs to who took it; 0 where nobody promised a time
    is_committed_only: bool = False  # the reader sees no open and no aborted transaction
    note: str = ""


History = Sequence[Event]


def now_us() -> int:
    return time.monotonic_ns() // 1_000


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Recorder:
    """Writes the events of one load. Threads may share it."""

    def __init__(self, file: IO[bytes], load: str) -> None:
        self._file = file
        self._load = load
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()

    def invoke(self, process: str, op: Op, **values: object) -> int:
        """The number of the operation, for its outcome."""
        number = next(self._numbers)
        self.record(process, op, Phase.INVOKE, number=number, **values)
        return number

    def record(self, process: str, op: Op, phase: Phase, **values: object) -> None:
        fields = {"at_us": now_us(), "load": self._load, "process": process, "op": op, "phase": phase}
        event = msgspec.convert(fields | values, Event)
        line = self._encoder.encode(event) + b"\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()  # the process may be killed, and what it did until then counts


def read_history(files: Iterable[Path]) -> list[Event]:
    """All of them as one, by time. The torn last line of a process that was killed is left out."""
    decoder = msgspec.json.Decoder(Event)
    events: list[Event] = []
    for path in files:
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                events.append(decoder.decode(line))
    events.sort(key=lambda one: one.at_us)
    return events
