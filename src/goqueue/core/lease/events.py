"""What the log of a ledger holds: what happened to the records of one partition, for every queue group that reads it.

Offsets travel as runs: most of what one poll gives and one ack names is contiguous. Groups go by a number, which the
first event of each gives it. A snapshot is a series of events too: it begins the state anew, and counts only when its
last event is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from msgspec import Struct

REDRIVE = 0  # in place of a group: groups are numbered from 1 on
REDRIVEN = "redriven"  # the cause of its moves


class Run(NamedTuple):
    """Neighbouring offsets."""

    start: int
    length: int


class Seen(NamedTuple):
    """Records that a group meets for the first time, or again: all of one lane, with as many deliveries."""

    start: int
    length: int
    lane: int
    deliveries: int


class Letter(NamedTuple):
    """A record on its way to the dead letters, and what its new headers tell."""

    offset: int
    deliveries: int
    first_ms: int
    last_ms: int
    member: str


class Target(NamedTuple):
    topic: str
    partition: int


class Opened(Struct, frozen=True, array_like=True, tag="open"):
    """A group begins to read the partition at `start`."""

    group: int
    group_id: str
    start: int


class Leased(Struct, frozen=True, array_like=True, tag="lease"):
    """`keys` and `held` only where the order of keys is kept: the key of each offset, in the order of the runs, and
    records that were passed by because another of their key is under way: (offset, lane, key)."""

    group: int
    serial: int
    member: str
    now_ms: int
    deadline_ms: int
    seen: list[Seen]
    cursors: tuple[int, ...]
    keys: list[int] = []
    held: list[tuple[int, int, int]] = []


class Settled(Struct, frozen=True, array_like=True, tag="done"):
    """Nobody will get these again: they were acknowledged, or are gone from the log."""

    group: int
    runs: list[Run]
    cursors: tuple[int, ...]


class Postponed(Struct, frozen=True, array_like=True, tag="wait"):
    """Nobody holds these any more; each may be given again from its instant on."""

    group: int
    items: list[tuple[int, int]]  # (offset, from when on)
    is_expired: bool
    reason: str = ""


class Extended(Struct, frozen=True, array_like=True, tag="extend"):
    group: int
    serial: int
    deadline_ms: int
    runs: list[Run]


class Moving(Struct, frozen=True, array_like=True, tag="move"):
    """These leave the partition for another topic, in this order, with this sequence of the ledger's producer."""

    group: int  # or REDRIVE
    serial: int
    letters: list[Letter]
    target: Target
    sequence: int
    now_ms: int
    reason: str
    cause: str  # rejected, retries exhausted, or redriven
    group_id: str = ""  # the group may be gone when the move is carried out


class Moved(Struct, frozen=True, array_like=True, tag="moved"):
    """All of it is where it should be, and durable."""

    serial: int


class Withdrawn(Struct, frozen=True, array_like=True, tag="back"):
    """The topic that a redrive was to go to is deleted: its records are where they were."""

    serial: int


class ProducerNamed(Struct, frozen=True, array_like=True, tag="producer"):
    """Under which id the ledger writes what it moves."""

    producer_id: int
    epoch: int


class Sought(Struct, frozen=True, array_like=True, tag="seek"):
    """The group begins anew at `start`; receipts from before are void."""

    group: int
    start: int


class Trimmed(Struct, frozen=True, array_like=True, tag="trim"):
    """Retention has taken everything before `start`."""

    group: int  # or REDRIVE
    start: int


class Closed(Struct, frozen=True, array_like=True, tag="close"):
    group: int


class SnapshotBegan(Struct, frozen=True, array_like=True, tag="snapshot"):
    serial: int
    group_number: int  # the last that was given
    producer_id: int
    producer_epoch: int
    sequences: list[tuple[Target, int]]


class WindowSaved(Struct, frozen=True, array_like=True, tag="window"):
    group: int
    group_id: str
    incarnation: int
    cursors: tuple[int, ...]
    settled_count: int
    moved_count: int


class EntriesSaved(Struct, frozen=True, array_like=True, tag="entries"):
    """A part of a window's entries, as `Entry` has them: (offset, lane, deliveries, state, until, serial, member, first,
    last, key, reason)."""

    group: int
    entries: list[tuple[int, int, int, int, int, int, str, int, int, int, str]]


class RedrivenSaved(Struct, frozen=True, array_like=True, tag="redriven"):
    """A part of what was redriven from here."""

    runs: list[Run]


class MoveSaved(Struct, frozen=True, array_like=True, tag="moving"):
    """A move that was decided before the snapshot and is not known to be done."""

    move: Moving


class SnapshotEnded(Struct, frozen=True, array_like=True, tag="end"):
    pass


Change = (
    Opened
    | Leased
    | Settled
    | Postponed
    | Extended
    | Moving
    | Moved
    | Withdrawn
    | ProducerNamed
    | Sought
    | Trimmed
    | Closed
)
SnapshotPart = SnapshotBegan | WindowSaved | EntriesSaved | RedrivenSaved | MoveSaved | SnapshotEnded
Event = Change | SnapshotPart

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def encode(event: Event) -> bytes:
    return _encoder.encode(event)


def decode(data: bytes) -> Event:
    return _decoder.decode(data)


def runs_of(offsets: Iterable[int]) -> list[Run]:
    """Of offsets in ascending order."""
    runs: list[Run] = []
    start = end = -1
    for offset in offsets:
        if offset == end:
            end += 1
            continue
        if end > start:
            runs.append(Run(start, end - start))
        start, end = offset, offset + 1
    if end > start:
        runs.append(Run(start, end - start))
    return runs


def offsets_of(runs: Iterable[Run]) -> Iterator[int]:
    for run in runs:
        yield from range(run.start, run.start + run.length)
