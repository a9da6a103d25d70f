"""Where a read begins and where it ends, as asked for, and what that is in offsets.

A bound is resolved against what the partitions have now. An offset given by name is checked against it, a time is
looked up; a time that no record reaches is the end for an end, and for a beginning an error or the end, as the user chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.options import json_object
from goqueue.pipeline.span import Place, Transport

EARLIEST, LATEST = -2, -1  # as Kafka writes them among offsets
_MOST = 2**63 - 1  # offsets and times have 64 bits
_OFFSETS_EXAMPLE = '{"orders": {"0": 23, "1": -2}}'
_TIMES_EXAMPLE = '{"orders": {"0": 1700000000000}}'


@dataclass(frozen=True, slots=True)
class Earliest: ...


@dataclass(frozen=True, slots=True)
class Latest: ...


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Each partition by name; -2 is earliest, -1 is latest."""

    offsets: tuple[tuple[Place, int], ...]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is at least so new. Strict: it is an error if there is none."""

    timestamp_ms: int
    is_strict: bool


@dataclass(frozen=True, slots=True)
class AtTimes:
    times: tuple[tuple[Place, int], ...]
    is_strict: bool


Bound: TypeAlias = Earliest | Latest | AtOffsets | AtTime | AtTimes


def resolve(
    bound: Bound, transport: Transport, latest: Mapping[Place, int], *, option: str
) -> dict[Place, int]:
    """The offset of every partition in `latest`. `option` is for the error."""
    places = tuple(latest)
    match bound:
        case Earliest():
            return transport.earliest(places)
        case Latest():
            return dict(latest)
        case AtOffsets(offsets):
            return _named(dict(offsets), transport, latest, option=option)
        case AtTime(timestamp_ms, is_strict):
            return _timed(dict.fromkeys(places, timestamp_ms), transport, latest, is_strict=is_strict)
        case AtTimes(times, is_strict):
            by_place = dict(times)
            _check_complete(by_place, latest, f"{option}ByTimestamp", hint="")
            return _timed(by_place, transport, latest, is_strict=is_strict)
        case _:
            assert_never(bound)


def read_offsets(value: str) -> Bound:
    match value.lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case _:
            return AtOffsets(_by_place(value, _OFFSETS_EXAMPLE, least=EARLIEST))


def read_timestamps(value: str) -> Bound:
    return AtTimes(_by_place(value, _TIMES_EXAMPLE, least=0), is_strict=False)


def _named(
    asked: dict[Place, int], transport: Transport, latest: Mapping[Place, int], *, option: str
) -> dict[Place, int]:
    _check_complete(asked, latest, option, hint="; -2 is earliest, -1 is latest")
    oldest = [place for place, offset in asked.items() if offset == EARLIEST]
    earliest = transport.earliest(oldest) if oldest else {}
    resolved = {}
    for place, offset in asked.items():
        if offset == EARLIEST:
            resolved[place] = earliest[place]
        else:
            resolved[place] = latest[place] if offset == LATEST else offset
        if resolved[place] > latest[place]:
            raise OptionError(
                f"{option} has offset {offset} for {place.topic}-{place.partition}, which ends at {latest[place]}"
            )
    return resolved


def _timed(
    times: Mapping[Place, int], transport: Transport, latest: Mapping[Place, int], *, is_strict: bool
) -> dict[Place, int]:
    resolved: dict[Place, int] = {}
    for timestamp_ms in sorted(set(times.values())):
        places = [place for place, time_ms in times.items() if time_ms == timestamp_ms]
        found = transport.at_time(places, timestamp_ms)
        for place in places:
            offset = found.get(place)
            if offset is None and is_strict:
                raise OptionError(
                    f"{place.topic}-{place.partition} has no record at or after {timestamp_ms} to begin at; "
                    "with startingOffsetsByTimestampStrategy=latest it begins at its end"
                )
            resolved[place] = latest[place] if offset is None else min(offset, latest[place])
    return resolved


def _check_complete(
    asked: Mapping[Place, object], places: Mapping[Place, object], option: str, *, hint: str
) -> None:
    """As the Kafka connector has it: all partitions or none, so that a forgotten one is not a surprise."""
    missing = sorted(set(places) - set(asked))
    strange = sorted(set(asked) - set(places))
    if missing:
        raise OptionError(
            f"{option} must have every partition that is read and lacks {_names(missing)}{hint}"
        )
    if strange:
        raise OptionError(f"{option} has {_names(strange)}, which the query does not read")


def _names(places: list[Place]) -> str:
    shown = ", ".join(f"{place.topic}-{place.partition}" for place in places[:10])
    return shown + (f" and {len(places) - 10} more" if len(places) > 10 else "")


def _by_place(value: str, example: str, *, least: int) -> tuple[tuple[Place, int], ...]:
    found = []
    for topic, partitions in json_object(value, example).items():
        if not isinstance(partitions, dict):
            raise ValueError(f"each topic needs partitions with numbers, such as {example}")
        for partition, number in partitions.items():
            if not partition.isdecimal() or type(number) is not int or not least <= number <= _MOST:
                raise ValueError(
                    f"{topic} has {json_text(partition, number)}; write numbers such as {example}"
                )
            found.append((Place(topic, int(partition)), number))
    if not found:
        raise ValueError(f"it names no partition; write something like {example}")
    return tuple(sorted(found))


def json_text(partition: str, number: object) -> str:
    return f'"{partition}": {number!r}'
