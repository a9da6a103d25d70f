"""Leaders where they were planned. After a failure leaderships lie wherever they fell; this brings them back to the preferred
replicas, a few at a time, because each costs its clients a moment."""

from __future__ import annotations

from collections.abc import Iterable

from goqueue.core.cluster.elections import States, elect_preferred
from goqueue.core.cluster.partitions import PartitionState


def to_elect(
    astray: Iterable[tuple[str, int, PartitionState]], states: States, *, count_max: int
) -> list[tuple[str, int]]:
    """Of the partitions that their preferred replica does not lead, those that it could: for `ElectLeaders`."""
    found: list[tuple[str, int]] = []
    for topic, index, state in astray:
        if len(found) == count_max:
            break
        if not state.is_moving and elect_preferred(state, states).leader != state.leader:
            found.append((topic, index))
    return found
