"""One class per invariant. Each is given the history and the log as it was read back after a start.

They run after every start and once more at the end of a run, so a violation is found in the life that
caused it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from goqueue.model.acks import Acks
from goqueue.sim.history import History, Known, Place


@dataclass(slots=True)
class ReadBack:
    """Everything one partition serves after a start."""

    topic: str
    partition: int
    earliest: int
    end: int
    values: dict[int, str] = field(default_factory=dict)
    keys: dict[int, str | None] = field(default_factory=dict)
    timestamps: dict[int, str] = field(default_factory=dict)
    holes: list[tuple[int, int]] = field(default_factory=list)  # reported as damaged
    reported_damage: list[str] = field(default_factory=list)  # by recovery
    is_compacted: bool = False

    def in_hole(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.holes)


@dataclass(frozen=True, slots=True)
class FlippedBatch:
    """A batch with offsets [start, end) in which one bit was turned while the broker was down."""

    topic: str
    partition: int
    start: int
    end: int
    is_after_recovery_point: bool


@dataclass(slots=True)
class Circumstances:
    """What happened since the log was last read back, and so what may be missing."""

    power_was_cut: bool = False
    power_cut_at_s: float = 0.0
    started_at_s: float = (
        0.0  # a start gives what kill -9 left in the page cache the whole flush interval again
    )
    flush_is_reliable: bool = True  # no disk trouble that may delay what `acks=leader` promises
    flipped: set[Place] = field(
        default_factory=set
    )  # every place in a batch that was ever damaged on purpose
    flips: list[FlippedBatch] = field(default_factory=list)
    quarantined: set[tuple[str, int]] = field(default_factory=set)


class Checker(Protocol):
    def check(self, history: History, log: ReadBack, what: Circumstances) -> None: ...


class NoAckedWriteLost:
    """What was acknowledged with `all` is there for ever; with `leader`, unless the power failed within the flush interval;
    after kill -9 everything is there that anybody was told of."""

    FLUSH_BOUND_S = 3.0  # the interval of 1 s, and generous time for the fsync itself

    def check(self, history: History, log: ReadBack, what: Circumstances) -> None:
        for place, known in _known_of(history, log):
            if place.offset in log.values or place in what.flipped or place.offset < log.earliest:
                continue
            if log.is_compacted and place.offset < log.end and not log.in_hole(place.offset):
                continue  # CompactionKeepsTheLast looks at these
            if known.acks is Acks.ALL or not what.power_was_cut:
                history.violate(f"{place} {known.value!r} (acks {known.acks}) is lost")
                continue
            age_s = what.power_cut_at_s - max(known.at_s, what.started_at_s)
            if known.acks is not None and what.flush_is_reliable and age_s > self.FLUSH_BOUND_S:
                history.violate(f"{place} {known.value!r} was not flushed {age_s:.1f} s on")


class OneValuePerOffset:
    """What anybody was told stands at a place is what stands there."""

    def check(self, history: History, log: ReadBack, what: Circumstances) -> None:
        for place, known in _known_of(history, log):
            value = log.values.get(place.offset)
            if value is not None and value != known.value and place not in what.flipped:
                history.violate(f"{place} was {known.value!r} and is {value!r}")


class NoDuplicates:
    """A message is stored once, however often an idempotent producer sent it; others send each only once."""

    def check(self, history: History, log: ReadBack, what: Circumstances) -> None:
        seen: dict[str, int] = {}
        for offset, value in log.values.items():
            if value in seen:
                history.violate(
                    f"{log.topic}/{log.partition} holds {value!r} at {seen[value]} and at {offset}"
                )
            seen[value] = offset


class OnlySentValuesAreServed:
    """A torn write or a flipped bit is never served."""

    def check(self, history: History, log: ReadBack, what: Circumstances) -> None:
        for offset, value in log.values.items():
            if value not in history.sent:
                history.violate(
                    f"{log.topic}/{log.partition} serves {value!r} at {offset}, which nobody sent"
                )
            if value in history.refused:
                history.violate(
                    f"{log.topic}/{log.partition} serves {value!r} at {offset}, which was refused"
                )


class NoUnexplainedGaps:
    """Every offset between the start and the end is served, or reported as damaged, or compacted away."""

    def check(self, history: History, log: ReadBack, what: Circumstances) -> None:
        if log.is_compacted:
            return
        for offset in range(log.earliest, log.end):
            if offset not in log.values and not log.in_hole(offset):
                history.violate(f"{log.topic}/{log.partition} skips offset {offset} without a word")


class CompactionKeepsTheLast:
    """Of a compacted topic a record may be gone only if a later one has its key."""

    def check(self, history: History, log: ReadBack, what: Circumstances) -> None:
        if not log.is_compacted:
            return
        last: dict[str | None, int] = {}
        for offset in sorted(log.keys):
            last[log.keys[offset]] = offset
        for place, known in _known_of(history, log):
            key = history.sent[known.value].key if known.value in history.sent else None
            is_gone = place.offset not in log.values and log.earliest <= place.offset < log.end
            if (
                is_gone
                and not log.in_hole(place.offset)
                and last.get(key, -1) < place.offset
                and not log.holes
            ):
                history.violate(
                    f"{place} {known.value!r} was compacted away; key {key!r} has no later record"
                )


class FlippedBitIsReported:
    """Damage done to stored bytes is said: by recovery if it had to check them, else when they are read."""

    def check(self, history: History, log: ReadBack, what: Circumstances) -> None:
        for flip in what.flips:
            if (flip.topic, flip.partition) != (log.topic, log.partition) or flip.end <= log.earliest:
                continue
            is_told = bool(log.reported_damage) or (log.topic, log.partition) in what.quarantined
            if not flip.is_after_recovery_point:
                is_told = is_told or bool(log.holes)
            if not is_told:
                history.violate(f"a flipped bit went unnoticed: {flip}")


CHECKERS: tuple[Checker, ...] = (
    NoAckedWriteLost(),
    OneValuePerOffset(),
    NoDuplicates(),
    OnlySentValuesAreServed(),
    NoUnexplainedGaps(),
    CompactionKeepsTheLast(),
    FlippedBitIsReported(),
)


def forget_what_is_gone(history: History, log: ReadBack) -> None:
    """After the checks: the tail that a power cut took is no longer known, and its offsets are free. What is in
    a hole is settled too: it was allowed to go, or a checker has spoken."""
    for place, _ in _known_of(history, log):
        if place.offset >= log.end or log.in_hole(place.offset):
            del history.known[place]


def _known_of(history: History, log: ReadBack) -> list[tuple[Place, Known]]:
    return [
        (place, known)
        for place, known in history.known.items()
        if (place.topic, place.partition) == (log.topic, log.partition)
    ]
