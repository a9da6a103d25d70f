"""Filters that narrow what a batch reads, so that records which nobody wants are never fetched.

The topic and partition are the same for a whole span, and offsets are its bounds, so filters on them are answered here and Spark
need not look again. Timestamps need not grow with offsets: the first record that is new enough is a safe place to
begin, but there is no safe place to end, and Spark filters once more in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from goqueue.pipeline.span import Span, Transport

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_NO_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What is left of every span. `from_ms` is the oldest timestamp that can pass."""

    topic_filters: tuple[Filter, ...] = ()
    partition_filters: tuple[Filter, ...] = ()
    start: int = 0
    end: int = _NO_END
    from_ms: int | None = None

    def apply(self, spans: Sequence[Span], transport: Transport) -> list[Span]:
        kept = [cut for span in spans if self._is_wanted(span) and (cut := self._cut(span)).size > 0]
        if self.from_ms is None or not kept:
            return kept
        first = transport.at_time([span.place for span in kept], self.from_ms)
        # The ends were asked for before: where no record is new enough now, none within the span is.
        later = [
            span._replace(start=max(span.start, first[span.place] or 0))
            for span in kept
            if first[span.place] is not None
        ]
        return [span for span in later if span.size > 0]

    def _is_wanted(self, span: Span) -> bool:
        return all(passes(f, span.topic) for f in self.topic_filters) and all(
            passes(f, span.partition) for f in self.partition_filters
        )

    def _cut(self, span: Span) -> Span:
        return span._replace(start=max(span.start, self.start), end=min(span.end, self.end))


def push(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """What they come to, and those that Spark still has to apply."""
    topic_filters: list[Filter] = []
    partition_filters: list[Filter] = []
    rest: list[Filter] = []
    start, end, from_ms = 0, _NO_END, None
    for each in filters:
        column = _column(each)
        if column == "topic" and _is_plain(each, str):
            topic_filters.append(each)
        elif column == "partition" and _is_plain(each, int):
            partition_filters.append(each)
        elif column == "offset" and (bounds := _offset_bounds(each)) is not None:
            start, end = max(start, bounds[0]), min(end, bounds[1])
            if isinstance(each, In):
                rest.append(each)
        else:
            rest.append(each)
            if column == "timestamp" and (oldest := _oldest_ms(each)) is not None:
                from_ms = oldest if from_ms is None else max(from_ms, oldest)
    return Narrowing(tuple(topic_filters), tuple(partition_filters), start, end, from_ms), rest


def passes(test: Filter, value: str | int) -> bool:
    """Whether a value that is never null passes. The filter is one that `push` took."""
    match test:
        case Not(inner):
            return not passes(inner, value)
        case EqualTo(_, right) | EqualNullSafe(_, right):
            return bool(value == right)
        case GreaterThan(_, right):
            return bool(value > right)
        case GreaterThanOrEqual(_, right):
            return bool(value >= right)
        case LessThan(_, right):
            return bool(value < right)
        case LessThanOrEqual(_, right):
            return bool(value <= right)
        case In(_, among):
            return value in among
        case StringStartsWith(_, part):
            return str(value).startswith(part)
        case StringEndsWith(_, part):
            return str(value).endswith(part)
        case StringContains(_, part):
            return part in str(value)
        case _:
            return isinstance(test, IsNotNull)


def _column(test: Filter) -> str | None:
    path: tuple[str, ...] = getattr(_inner(test), "attribute", ())
    return path[0] if len(path) == 1 else None


def _inner(test: Filter) -> Filter:
    return _inner(test.child) if isinstance(test, Not) else test


def _is_plain(test: Filter, kind: type) -> bool:
    """Whether every value in it is of the column's type: a null, or a number of another kind, is for Spark."""
    inner = _inner(test)
    return isinstance(inner, IsNull | IsNotNull) or all(type(value) is kind for value in _values(inner))


def _values(test: Filter) -> Iterator[object]:
    value = getattr(test, "value", None)
    if isinstance(test, In):
        yield from value or ()
    else:
        yield value


def _offset_bounds(test: Filter) -> tuple[int, int] | None:
    """Half-open; None where it says nothing that bounds can."""
    if isinstance(test, Not) or not _is_plain(test, int):
        return None
    match test:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return value, value + 1
        case GreaterThan(_, value):
            return value + 1, _NO_END
        case GreaterThanOrEqual(_, value):
            return value, _NO_END
        case LessThan(_, value):
            return 0, value
        case LessThanOrEqual(_, value):
            return 0, value + 1
        case In(_, among) if among:
            return min(among), max(among) + 1
        case IsNotNull():
            return 0, _NO_END
        case _:
            return None


def _oldest_ms(test: Filter) -> int | None:
    match test:
        case EqualTo() | EqualNullSafe() | GreaterThan() | GreaterThanOrEqual() | In():
            moments = [
                value for value in _values(test) if isinstance(value, datetime) and value.tzinfo is not None
            ]
        case _:
            return None
    if not moments or len(moments) != len(list(_values(test))):
        return None
    return max(0, (min(moments) - _EPOCH) // _MILLISECOND)
