"""A stream's offset as Spark keeps it: JSON {topic: {partition: offset}}, sorted, and where new partitions began.

Spark asks for the initial offset several times, before and after crashes, and a checkpoint has only the *ends* of batches. If the
beginning were looked up each time it would differ each time, and whatever came in between would be lost. So the initial
offset is a constant marker, `{}`, and the end of a batch says under "@from" where the partitions begin that its predecessor
did not have. The checkpoint then has everything that a replay needs. No topic can be named "@from".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.span import Place, Span

FROM = "@from"
MARKER: dict[str, object] = {}

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Offsets:
    """`at` is the exclusive end in every partition; `begun` where those begin that are not continued from the offset before."""

    at: dict[Place, int] = field(default_factory=dict)
    begun: dict[Place, int] = field(default_factory=dict)

    @staticmethod
    def of(offset: Mapping[str, object]) -> Offsets:
        begun = offset.get(FROM, {})
        rest = {topic: partitions for topic, partitions in offset.items() if topic != FROM}
        return Offsets(_places(rest, offset), _places(begun, offset))

    def to_json(self) -> Json:
        if not self.begun and self.at:
            return _nested(self.at)
        return {FROM: _nested(self.begun), **_nested(self.at)}

    def spans_since(self, before: Offsets) -> list[Span]:
        """What lies between: empty stretches left out, backward ones included for the caller to judge."""
        spans = []
        for place, end in sorted(self.at.items()):
            start = self.begun.get(place, before.at.get(place, 0))
            if start != end:
                spans.append(Span(*place, start, end))
        return spans


def is_marker(offset: Mapping[str, object]) -> bool:
    return not offset


def positions(offset: Mapping[str, object]) -> dict[Place, int]:
    """How far a stream has come, as found in its checkpoint or its progress: for whoever shows lag."""
    return Offsets.of(offset).at


def _nested(at: Mapping[Place, int]) -> Json:
    nested: dict[str, dict[str, int]] = {}
    for place, offset in sorted(at.items()):
        nested.setdefault(place.topic, {})[str(place.partition)] = offset
    return {**nested}


def _places(nested: object, whole: object) -> dict[Place, int]:
    found: dict[Place, int] = {}
    if not isinstance(nested, Mapping):
        raise _not_an_offset(whole)
    for topic, partitions in nested.items():
        if not isinstance(partitions, Mapping):
            raise _not_an_offset(whole)
        for partition, offset in partitions.items():
            if not isinstance(offset, int) or not str(partition).isdecimal():
                raise _not_an_offset(whole)
            found[Place(str(topic), int(partition))] = offset
    return found


def _not_an_offset(whole: object) -> PipelineError:
    return PipelineError(
        f"the checkpoint has the offset {str(whole)[:200]}, which is not one of this source: "
        "it belongs to another query; use another checkpointLocation"
    )
