"""What only the broker or its files know: how many bytes are stored, and how far each group has come.

A group's usage is what can be known of it: the offset it has committed and the records behind that (lag). What it has read is
known between two reports, as the stretch between the offsets committed then and now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from goqueue.client.connection import segment
from goqueue.log.segment import LOG_SUFFIX
from goqueue.pipeline.backup.tree import open_tree
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.files.view import partition_folder
from goqueue.pipeline.jobs.rest import BrokerRest
from goqueue.pipeline.span import Place

GROUP_COUNT_MAX: Final = 10_000


class Position(NamedTuple):
    """How far a group has come in a partition."""

    group: str
    topic: str
    partition: int
    committed: int
    latest: int

    @property
    def lag(self) -> int:
        return max(0, self.latest - self.committed)


class Stretch(NamedTuple):
    """Offsets [start, end) that a group has read between two reports."""

    group: str
    topic: str
    partition: int
    start: int
    end: int


def stretches(before: Iterable[Position], now: Iterable[Position]) -> tuple[list[Stretch], list[Position]]:
    """What was read since; and those that have gone back, of whom it cannot be known. Who is new has no beginning and counts
    from the next report on."""
    known = {(one.group, one.topic, one.partition): one.committed for one in before}
    moved: list[Stretch] = []
    back: list[Position] = []
    for one in now:
        start = known.get((one.group, one.topic, one.partition))
        if start is None:
            continue
        if one.committed < start:
            back.append(one)
        elif one.committed > start:
            moved.append(Stretch(one.group, one.topic, one.partition, start, one.committed))
    return moved, back


def group_positions(broker: BrokerRest, topics: Collection[str]) -> list[Position]:
    """Of every group, stream or queue, that has come somewhere in these topics."""
    names = sorted(one.id for one in broker.ask("GET", "/groups", _Groups).groups)
    if len(names) > GROUP_COUNT_MAX:
        raise PipelineError(f"there are {len(names)} groups; at most {GROUP_COUNT_MAX} are looked at")
    found = []
    for group in names:
        offsets = broker.ask("GET", f"/groups/{segment(group)}/offsets", _Offsets).offsets
        found += [
            Position(group, topic, int(partition), one.offset, one.offset + one.lag)
            for topic, partitions in offsets.items()
            if topic in topics
            for partition, one in partitions.items()
        ]
    return sorted(found)


def bytes_told(broker: BrokerRest, topics: Iterable[str]) -> dict[str, int]:
    """Bytes of each topic's segments: with what the format adds and compression saves."""
    return {
        topic: broker.ask("GET", f"/topics/{segment(topic)}", _Topic).total_size_bytes for topic in topics
    }


def bytes_of_files(path: str, topics: Mapping[str, int]) -> dict[str, int]:
    """The same of a folder."""
    storage = open_tree(path)
    found = {}
    for topic, partition_count in topics.items():
        folders = [storage.list(partition_folder(Place(topic, index))) for index in range(partition_count)]
        found[topic] = sum(
            entry.size for folder in folders for entry in folder or () if entry.name.endswith(LOG_SUFFIX)
        )
    return found


class _Group(Struct):
    id: str


class _Groups(Struct):
    groups: list[_Group]


class _Offset(Struct):
    offset: int
    lag: int


class _Offsets(Struct):
    offsets: dict[str, dict[str, _Offset]]


class _Topic(Struct):
    total_size_bytes: int
