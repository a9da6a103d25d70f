"""Which partitions of a topic with `scaling=keyed` a group is not given yet (`core/cluster/scaling.py`).

A gate says that one partition is to be read up to an offset before another. A group has passed it when its committed
offset is there; or when nothing it could read is left before it, for clients commit the last record they got and not
what lies behind it: markers of transactions, holes, what retention took. Whether that is so the leader knows, and
`GateNotes` keep what it said. A gate of growth is passed, too, when the group has committed in the new partition and never in the old
one: it was given it when it had waited long enough. And a partition counts as read only if the gates before it are passed, for keys may have gone
through it without leaving a record.

A partition that goes is taken from a group that has read it: nobody may still commit there when it is gone, for another may get its
number. While a topic shrinks, a group that has not come to the last growth yet needs the partition that stays to get there: it is
not kept from it before it has; once the holds are released, not before the leader has said that there is something to read, for what is noted
is gone with the node, and the group may have come there long ago.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from goqueue.core.cluster.scaling import Gate, Scaling
from goqueue.core.group.assignors import Assignments, Assignor, MemberSubscription
from goqueue.core.group.consumer_events import Assignment, Partition, pack, unpack

NOTHING: Final[frozenset[int]] = frozenset()
Blocked = Callable[[str], frozenset[int]]  # topic to partitions, of one group
ScalingOf = Callable[[str], Scaling | None]  # by topic; None: it is not keyed


def no_scaling(topic: str) -> None:
    """Where no topic is keyed."""


def is_past(scaling_of: ScalingOf, place: Partition, leader_epoch: int) -> bool:
    """Whether records with this leader epoch were in a partition that is no more, whose number another one has now."""
    topic, index = place
    scaling = scaling_of(topic)
    return scaling is not None and 0 <= leader_epoch < scaling.first_epoch(index)


def nothing_blocked(topic: str) -> frozenset[int]:
    """Likewise."""
    return NOTHING


class Progress(Protocol):
    """How far a group has come in one topic."""

    def committed(self, partition: int) -> int | None:
        """None: it has committed nothing there."""

    def is_read_out(self, gate: Gate, start: int) -> bool:
        """Whether it is known that nothing can be read from the offset on up to the gate."""

    def is_left(self, gate: Gate) -> bool:
        """Whether it is known that the group had something to read before the gate."""

    def is_waived(self, gate: Gate) -> bool:
        """Whether it has waited long enough for a group that never commits."""


def blocked(scaling: Scaling, progress: Progress) -> frozenset[int]:
    """What the group is not given: partitions with a gate that it has not passed, that are not open to anybody, or that go away and
    are read."""
    is_held = scaling.stage == "merging"
    first = {gate.behind for gate in _unreached(scaling, progress) if is_held or progress.is_left(gate)}
    found = {
        gate.blocked
        for gate in unpassed(scaling, progress)
        if not (gate.is_merging and gate.blocked in first)
    }
    if scaling.stage == "growing":
        new = range(scaling.old_count, scaling.key_count)
        found.update(index for index in new if scaling.home(index, index) is None)
    if scaling.stage == "draining":
        going = (gate for gate in scaling.gates if gate.is_merging)
        found.update(gate.behind for gate in going if _is_passed(scaling, gate, progress))
    return frozenset(found)


def unpassed(scaling: Scaling, progress: Progress) -> list[Gate]:
    return [gate for gate in scaling.gates if not _is_passed(scaling, gate, progress)]


def needed_first(scaling: Scaling, progress: Progress) -> frozenset[int]:
    """Partitions that stay in a topic that shrinks, and that the group has to read on in before it is given those that go."""
    return frozenset(gate.behind for gate in _unreached(scaling, progress))


def _unreached(scaling: Scaling, progress: Progress) -> list[Gate]:
    """Gates of growth, in partitions that stay in a topic that shrinks, before those that go."""
    if not scaling.is_shrinking:
        return []
    return [
        gate
        for gate in scaling.gates
        if goes_back(gate, scaling.key_count) and not _is_reached(gate, progress)
    ]


def goes_back(gate: Gate, partition_count: int) -> bool:
    """Whether the keys that went through this gate of growth leave where they are if there are only so many partitions."""
    return gate.behind < partition_count <= gate.blocked


def _is_passed(scaling: Scaling, gate: Gate, progress: Progress) -> bool:
    if not _is_reached(gate, progress):
        return False
    if _was_given(gate, progress):
        return True
    before = (one for one in scaling.gates_of(gate.behind) if not one.is_merging)
    return all(_is_passed(scaling, one, progress) for one in before)


def _is_reached(gate: Gate, progress: Progress) -> bool:
    if _was_given(gate, progress):
        return True
    committed = progress.committed(gate.behind)
    if (committed or 0) >= gate.until:  # also where nothing is before the gate
        return True
    return progress.is_read_out(gate, committed or 0) or (committed is None and progress.is_waived(gate))


def _was_given(gate: Gate, progress: Progress) -> bool:
    """Whether it has what is behind a gate of growth though it has never committed before the gate."""
    return (
        not gate.is_merging
        and progress.committed(gate.blocked) is not None
        and progress.committed(gate.behind) is None
    )


class GateNotes:
    """What a node has found out about gates beside what groups commit. It is gone with the node, and found out again."""

    def __init__(self) -> None:
        self._read_out: dict[str, dict[tuple[int, int], int]] = {}  # by topic; behind and until
        self._waived: dict[str, dict[tuple[str, int, int], None]] = {}  # by group; topic, behind, until
        self._left: dict[str, dict[tuple[str, int, int], None]] = {}  # likewise

    def note_read_out(self, topic: str, gate: Gate, start: int) -> None:
        """Nothing can be read from `start` on up to the gate."""
        notes = self._read_out.setdefault(topic, {})
        key = gate.behind, gate.until
        notes[key] = min(start, notes.get(key, start))

    def note_waived(self, group_id: str, topic: str, gate: Gate) -> None:
        self._waived.setdefault(group_id, {})[topic, gate.behind, gate.until] = None

    def note_left(self, group_id: str, topic: str, gate: Gate) -> None:
        """The group has something to read before the gate."""
        self._left.setdefault(group_id, {})[topic, gate.behind, gate.until] = None

    def is_left(self, group_id: str, topic: str, gate: Gate) -> bool:
        return (topic, gate.behind, gate.until) in self._left.get(group_id, {})

    def is_read_out(self, topic: str, gate: Gate, start: int) -> bool:
        found = self._read_out.get(topic, {}).get((gate.behind, gate.until))
        return found is not None and start >= found

    def is_waived(self, group_id: str, topic: str, gate: Gate) -> bool:
        return (topic, gate.behind, gate.until) in self._waived.get(group_id, {})

    def forget_topic(self, topic: str) -> None:
        """It is gone, or has other partitions under the same numbers."""
        self._read_out.pop(topic, None)
        for noted in (*self._waived.values(), *self._left.values()):
            for key in [key for key in noted if key[0] == topic]:
                del noted[key]

    def forget_group(self, group_id: str) -> None:
        """It has no members that could wait or read."""
        self._waived.pop(group_id, None)
        self._left.pop(group_id, None)


class GroupProgress:
    """Of one group in one topic."""

    def __init__(
        self, group_id: str, topic: str, committed: Callable[[str, Partition], int | None], notes: GateNotes
    ) -> None:
        self._group_id = group_id
        self._topic = topic
        self._committed = committed
        self._notes = notes

    def committed(self, partition: int) -> int | None:
        return self._committed(self._group_id, (self._topic, partition))

    def is_read_out(self, gate: Gate, start: int) -> bool:
        return self._notes.is_read_out(self._topic, gate, start)

    def is_left(self, gate: Gate) -> bool:
        return self._notes.is_left(self._group_id, self._topic, gate)

    def is_waived(self, gate: Gate) -> bool:
        return self._notes.is_waived(self._group_id, self._topic, gate)


class Gates:
    """Of all groups of a shard."""

    def __init__(
        self,
        scaling_of: ScalingOf,
        committed: Callable[[str, Partition], int | None],
        notes: GateNotes,
    ) -> None:
        self._scaling_of = scaling_of
        self._committed = committed
        self._notes = notes

    def progress(self, group_id: str, topic: str) -> GroupProgress:
        return GroupProgress(group_id, topic, self._committed, self._notes)

    def blocked(self, group_id: str, topic: str) -> frozenset[int]:
        scaling = self._scaling_of(topic)
        if scaling is None or not (scaling.gates or scaling.unfenced):
            return NOTHING
        return blocked(scaling, self.progress(group_id, topic))

    def withheld(self, group_id: str, places: Iterable[Partition]) -> list[Partition]:
        """Those of them that the group is not given; also what is not known here yet, for its gates are not either."""
        by_topic: dict[str, frozenset[int]] = {}
        found: list[Partition] = []
        for topic, index in places:
            if topic not in by_topic:
                by_topic[topic] = self.blocked(group_id, topic)
            if index in by_topic[topic] or self._is_unknown(topic, index):
                found.append((topic, index))
        return found

    def _is_unknown(self, topic: str, index: int) -> bool:
        scaling = self._scaling_of(topic)
        return scaling is not None and index >= scaling.partition_count

    def begins_at_start(self, group_id: str, place: Partition) -> bool:
        """Whether a group that has committed nothing in a partition is to read it from its beginning: it came by growth, and
        the group has read what its keys were in before."""
        topic, index = place
        scaling = self._scaling_of(topic)
        if scaling is None:
            return False
        return any(
            self._committed(group_id, (topic, before)) is not None for before in scaling.ancestors(index)
        )


def assign_open(
    assign: Assignor,
    members: Sequence[MemberSubscription],
    topics: Mapping[str, int],
    closed: Mapping[str, frozenset[int]],
    previous: Mapping[str, Assignment],
) -> Assignments:
    """As the assignor does it, if there were only the partitions that are not closed: it sees them as 0, 1, 2 and so on."""
    if not closed:
        return assign(members, topics, previous)
    numbers = {
        topic: [index for index in range(topics[topic]) if index not in indexes]
        for topic, indexes in closed.items()
    }
    places = {topic: {index: at for at, index in enumerate(of)} for topic, of in numbers.items()}

    def seen(assignment: Assignment) -> Assignment:
        return pack(
            (topic, places[topic][index] if topic in places else index)
            for topic, index in unpack(assignment)
            if topic not in places or index in places[topic]
        )

    counts = {topic: len(numbers[topic]) if topic in numbers else count for topic, count in topics.items()}
    found = assign(members, counts, {member: seen(had) for member, had in previous.items()})
    return {
        member: pack(
            (topic, numbers[topic][index] if topic in numbers else index) for topic, index in unpack(given)
        )
        for member, given in found.items()
    }
