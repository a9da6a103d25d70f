"""The state of every partition, with the indexes that keep each change as small as itself: what a node leads and has, and what
is led by another than its preferred replica."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from goqueue.core.cluster.partitions import PartitionState
from goqueue.model.errors import PartitionNotFound, TopicNotFound

Key = tuple[str, int]  # topic, partition


class _Places:
    """Partitions, by topic."""

    def __init__(self) -> None:
        self._indexes: dict[str, set[int]] = {}
        self.count = 0

    def add(self, topic: str, index: int) -> None:
        self._indexes.setdefault(topic, set()).add(index)
        self.count += 1

    def remove(self, topic: str, index: int) -> None:
        indexes = self._indexes[topic]
        indexes.remove(index)
        self.count -= 1
        if not indexes:
            del self._indexes[topic]

    def topics(self) -> list[str]:
        return sorted(self._indexes)

    def keys(self) -> list[Key]:
        return [(topic, index) for topic in self.topics() for index in sorted(self._indexes[topic])]


class PartitionTable:
    def __init__(self) -> None:
        self._states: dict[str, list[PartitionState]] = {}
        self._led: dict[int, _Places] = {}
        self._held: dict[int, _Places] = {}
        self._preferring: dict[int, int] = {}  # of how many a node is the preferred leader
        self._astray = _Places()
        self._short_count = 0
        self._before: dict[Key, tuple[int, ...]] = {}  # the replicas of what is moving, before it did

    def get(self, topic: str, index: int) -> PartitionState:
        states = self.of(topic)
        if not 0 <= index < len(states):
            raise PartitionNotFound(topic, index, len(states))
        return states[index]

    def find(self, topic: str, index: int) -> PartitionState | None:
        states = self._states.get(topic, ())
        return states[index] if 0 <= index < len(states) else None

    def of(self, topic: str) -> Sequence[PartitionState]:
        states = self._states.get(topic)
        if states is None:
            raise TopicNotFound(topic)
        return states

    def topics(self) -> list[str]:
        return sorted(self._states)

    def all(self) -> list[Key]:
        """Sorted; this one walks everything."""
        return [(topic, index) for topic in sorted(self._states) for index in range(len(self._states[topic]))]

    def led_by(self, number: int) -> list[Key]:
        places = self._led.get(number)
        return places.keys() if places else []

    def held_by(self, number: int) -> list[Key]:
        """Of which the node is a replica."""
        places = self._held.get(number)
        return places.keys() if places else []

    def topics_of(self, number: int) -> list[str]:
        places = self._held.get(number)
        return places.topics() if places else []

    def astray(self) -> list[Key]:
        """Led by another than the preferred replica, or by nobody."""
        return self._astray.keys()

    def leader_count(self, number: int) -> int:
        places = self._led.get(number)
        return places.count if places else 0

    def replica_count(self, number: int) -> int:
        places = self._held.get(number)
        return places.count if places else 0

    def preferred_count(self, number: int) -> int:
        """How many the node would lead if each were led by its first replica."""
        return self._preferring.get(number, 0)

    @property
    def short_count(self) -> int:
        """How many have a replica that is not in sync."""
        return self._short_count

    def before(self, topic: str, index: int) -> tuple[int, ...] | None:
        """The replicas that a partition had before it began to move; None if it does not."""
        return self._before.get((topic, index))

    def moving(self) -> list[Key]:
        return sorted(self._before)

    @property
    def moving_count(self) -> int:
        return len(self._before)

    # ---------------------------------------------------------------- changes

    def add(self, topic: str, states: Iterable[PartitionState]) -> None:
        """At the end of the topic, which may be new."""
        own = self._states.setdefault(topic, [])
        for state in states:
            self._index(topic, len(own), state)
            own.append(state)

    def put(self, topic: str, index: int, state: PartitionState) -> None:
        own = self._states[topic]
        old = own[index]
        if state.is_moving:
            self._before.setdefault((topic, index), old.replicas)
        else:
            self._before.pop((topic, index), None)
        self._unindex(topic, index, old)
        self._index(topic, index, state)
        own[index] = state

    def remove(self, topic: str) -> None:
        for index, state in enumerate(self._states.pop(topic)):
            self._unindex(topic, index, state)
            if state.is_moving:
                self._before.pop((topic, index), None)

    def cut(self, topic: str, count: int) -> None:
        """Those from `count` on are no more."""
        own = self._states[topic]
        for index in range(count, len(own)):
            self._unindex(topic, index, own[index])
            self._before.pop((topic, index), None)
        del own[count:]

    def load_before(self, topic: str, index: int, replicas: tuple[int, ...]) -> None:
        """From a snapshot."""
        self._before[topic, index] = replicas

    def _index(self, topic: str, index: int, state: PartitionState) -> None:
        _places(self._led, state.leader).add(topic, index)
        for number in state.replicas:
            _places(self._held, number).add(topic, index)
        first = state.replicas[0]
        self._preferring[first] = self._preferring.get(first, 0) + 1
        if state.leader != first:
            self._astray.add(topic, index)
        self._short_count += _is_short(state)

    def _unindex(self, topic: str, index: int, state: PartitionState) -> None:
        self._led[state.leader].remove(topic, index)
        for number in state.replicas:
            self._held[number].remove(topic, index)
        first = state.replicas[0]
        self._preferring[first] -= 1
        if state.leader != first:
            self._astray.remove(topic, index)
        self._short_count -= _is_short(state)


def _is_short(state: PartitionState) -> bool:
    return len(state.in_sync) < len(state.replicas)


def _places(table: dict[int, _Places], number: int) -> _Places:
    places = table.get(number)
    if places is None:
        places = table[number] = _Places()
    return places
