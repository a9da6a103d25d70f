"""Which partitions are read: of named topics, of those that match a pattern, or exactly these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.options import json_object
from goqueue.pipeline.span import Place

_ASSIGN_EXAMPLE = '{"orders": [0, 1]}'
PATTERN_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of the three is set; the options see to that."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def places(self, counts: Mapping[str, int]) -> tuple[Place, ...]:
        """The partitions that there are now, in order. What is named and not there is simply not among them."""
        return tuple(
            sorted(place for place in self._asked(counts) if place.partition < counts.get(place.topic, 0))
        )

    def check(self, counts: Mapping[str, int]) -> None:
        """A new query must not begin with a topic that is misspelt."""
        missing = [topic for topic in self._names() if topic not in counts]
        if missing:
            raise PipelineError(f"there is no topic {', '.join(missing)}; there are {_some(counts)}")
        for topic, partitions in self.assigned:
            if max(partitions) >= counts[topic]:
                raise PipelineError(
                    f"assign has partition {max(partitions)} of topic {topic}, which has {counts[topic]}"
                )

    def covers(self, topic: str) -> bool:
        """Whether records of that topic could be among what is read."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self._names()

    def _names(self) -> tuple[str, ...]:
        return (*self.topics, *(topic for topic, _ in self.assigned))

    def _asked(self, counts: Mapping[str, int]) -> Iterable[Place]:
        for topic, partitions in self.assigned:
            for partition in partitions:
                yield Place(topic, partition)
        for topic in counts if self.pattern is not None else self.topics:
            if self.covers(topic):
                yield from (Place(topic, partition) for partition in range(counts.get(topic, 0)))


def read_pattern(value: str) -> str:
    if not value or len(value) > PATTERN_CHARACTERS_MAX:
        raise ValueError(f"write a regular expression of 1 to {PATTERN_CHARACTERS_MAX} characters")
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"it is not a regular expression: {error}") from None
    return value


def read_assign(value: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found = json_object(value, _ASSIGN_EXAMPLE)
    for partitions in found.values():
        if (
            not isinstance(partitions, list)
            or not partitions
            or not all(type(p) is int and p >= 0 for p in partitions)
        ):
            raise ValueError(f"each topic needs a list of partitions, such as {_ASSIGN_EXAMPLE}")
    if not found:
        raise ValueError(f"it names no topic; write something like {_ASSIGN_EXAMPLE}")
    return tuple((topic, tuple(sorted(set(found[topic])))) for topic in sorted(found))


def _some(counts: Mapping[str, int]) -> str:
    names = sorted(counts)
    if not names:
        return "none"
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
