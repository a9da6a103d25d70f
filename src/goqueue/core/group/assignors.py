"""Who shall read which partition: pure functions of the subscriptions, the topics and who had what before.

`sticky` is the default and Kafka's `uniform` by another name. Its result is balanced (members with equal
subscriptions differ by at most one partition) and keeps as many partitions where they are as balance allows.
Where all subscriptions are equal, the common case, it makes the fewest moves possible. Where they differ,
it moves partitions one at a time from a member to one with at least two fewer, until there is no such pair;
every move lowers the sum of the squared loads, so it ends, and what it ends with is left alone the next time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from msgspec import Struct

from goqueue.core.group.consumer_events import Assignment, Partition, pack


class MemberSubscription(Struct, frozen=True):
    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None


Assignments = dict[str, Assignment]  # every member has an entry
Assignor = Callable[
    [Sequence[MemberSubscription], Mapping[str, int], Mapping[str, Assignment]],
    Assignments,
]


def sticky(
    members: Sequence[MemberSubscription], topics: Mapping[str, int], previous: Mapping[str, Assignment]
) -> Assignments:
    classes = _Classes(members, topics)
    kept = _kept(classes, topics, previous)
    if len(classes.topics) <= 1:
        owned = _spread_evenly(kept, _unowned(classes, topics, kept))
    else:
        owned = _Levelling(classes, topics, kept).run()
    return {member: pack(partitions) for member, partitions in owned.items()}


def range_(
    members: Sequence[MemberSubscription], topics: Mapping[str, int], previous: Mapping[str, Assignment]
) -> Assignments:
    """Of each topic, neighbouring partitions; the same members get the same numbers of topics that are alike."""
    classes = _Classes(members, topics)
    names = list(classes.of)
    owned: dict[str, list[Partition]] = {member: [] for member in names}
    for topic, seats in _seats(classes).items():
        each, rest = divmod(topics[topic], len(seats))
        start = 0
        for position in range(min(len(seats), topics[topic])):
            end = start + each + (position < rest)
            owned[names[seats[position]]].extend((topic, index) for index in range(start, end))
            start = end
    return {member: pack(partitions) for member, partitions in owned.items()}


def roundrobin(
    members: Sequence[MemberSubscription], topics: Mapping[str, int], previous: Mapping[str, Assignment]
) -> Assignments:
    """All partitions in turn, each to the next member that is subscribed to its topic."""
    classes = _Classes(members, topics)
    names = list(classes.of)
    owned: dict[str, list[Partition]] = {member: [] for member in names}
    turn = 0
    for topic, seats in _seats(classes).items():
        for index in range(topics[topic]):
            seat = seats[bisect_left(seats, turn) % len(seats)]
            owned[names[seat]].append((topic, index))
            turn = (seat + 1) % len(names)
    return {member: pack(partitions) for member, partitions in owned.items()}


DEFAULT_ASSIGNOR = "uniform"
ASSIGNORS: Mapping[str, Assignor] = {
    DEFAULT_ASSIGNOR: sticky,
    "sticky": sticky,
    "range": range_,
    "roundrobin": roundrobin,
}


def _in_order(members: Iterable[MemberSubscription]) -> list[MemberSubscription]:
    """Static members first and by their instance, so that a new member id in an old seat changes nothing."""
    return sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.member_id))


class _Classes:
    """Members with equal subscriptions form a class. A class has a number: subscriptions can be long."""

    def __init__(self, members: Iterable[MemberSubscription], topics: Mapping[str, int]) -> None:
        numbers: dict[tuple[str, ...], int] = {}
        said: dict[tuple[str, ...], int] = {}  # before topics that do not exist are left out
        self.of: dict[str, int] = {}  # in the order of members
        for member in _in_order(members):
            number = said.get(member.topics)
            if number is None:
                existing = tuple(sorted({topic for topic in member.topics if topic in topics}))
                number = said[member.topics] = numbers.setdefault(existing, len(numbers))
            self.of[member.member_id] = number
        self.topics = list(numbers)
        self.readers: dict[str, list[int]] = {}  # of a topic, the classes; topics without any are not here
        for number, subscribed in enumerate(self.topics):
            for topic in subscribed:
                self.readers.setdefault(topic, []).append(number)


def _seats(classes: _Classes) -> dict[str, list[int]]:
    """Of each topic, sorted by name, the places of its subscribers in the order of members."""
    found: dict[str, list[int]] = {}
    shared: dict[tuple[int, ...], list[int]] = {}  # most topics have the same subscribers
    for topic in sorted(classes.readers):
        key = tuple(classes.readers[topic])
        if key not in shared:
            chosen = frozenset(key)
            shared[key] = [place for place, number in enumerate(classes.of.values()) if number in chosen]
        found[topic] = shared[key]
    return found


def _kept(
    classes: _Classes, topics: Mapping[str, int], previous: Mapping[str, Assignment]
) -> dict[str, list[Partition]]:
    """What each member had before and may still have."""
    allowed = [frozenset(subscribed) for subscribed in classes.topics]
    taken: set[Partition] = set()
    kept: dict[str, list[Partition]] = {}
    for member, number in classes.of.items():
        kept[member] = []
        for topic, indexes in previous.get(member, ()):
            if topic not in allowed[number]:
                continue
            for index in indexes:
                if index < topics[topic] and (topic, index) not in taken:
                    taken.add((topic, index))
                    kept[member].append((topic, index))
    return kept


def _unowned(
    classes: _Classes, topics: Mapping[str, int], kept: Mapping[str, list[Partition]]
) -> list[Partition]:
    """Sorted; only of topics that somebody is subscribed to."""
    taken = {partition for partitions in kept.values() for partition in partitions}
    every = ((topic, index) for topic in sorted(classes.readers) for index in range(topics[topic]))
    return [partition for partition in every if partition not in taken]


def _spread_evenly(kept: dict[str, list[Partition]], unowned: list[Partition]) -> dict[str, list[Partition]]:
    """Every member may have every partition: those that had most keep the one that is more."""
    if not kept:
        return {}
    each, rest = divmod(sum(map(len, kept.values())) + len(unowned), len(kept))
    owned: dict[str, list[Partition]] = {}
    given_up: list[Partition] = []
    room: deque[tuple[str, int]] = deque()
    by_load = sorted(kept, key=lambda member: -len(kept[member]))  # stable: the order of members decides
    quotas = {member: each + (position < rest) for position, member in enumerate(by_load)}
    for member, partitions in kept.items():
        # By number before topic: what goes is then spread over the topics.
        partitions.sort(key=lambda partition: (partition[1], partition[0]))
        quota = quotas[member]
        owned[member] = partitions[:quota]
        given_up += partitions[quota:]
        if len(partitions) < quota:
            room.append((member, quota - len(partitions)))
    for partition in sorted(unowned + given_up):
        member, left = room.popleft()
        owned[member].append(partition)
        if left > 1:
            room.append((member, left - 1))
    return owned


class _Levelling:
    """Assignment where subscriptions differ. The least loaded subscriber of a topic is sought among the least loaded of
    each class, which bounds the work."""

    def __init__(
        self, classes: _Classes, topics: Mapping[str, int], kept: Mapping[str, list[Partition]]
    ) -> None:
        self._topics = topics
        self._class_of = classes.of
        self._readers = classes.readers
        self._loads = {member: len(partitions) for member, partitions in kept.items()}
        self._least: list[list[tuple[int, str]]] = [[] for _ in classes.topics]  # heaps; may hold old loads
        for member, number in classes.of.items():
            heappush(self._least[number], (self._loads[member], member))
        # Of each topic, its partitions by owner; those that the owner had before come first.
        self._owned: dict[str, dict[str, list[int]]] = {topic: {} for topic in self._readers}
        for member, partitions in kept.items():
            for topic, index in partitions:
                self._owned[topic].setdefault(member, []).append(index)

    def run(self) -> dict[str, list[Partition]]:
        # A topic that few may read has the least choice, so it chooses first.
        for topic in sorted(self._readers, key=lambda topic: (len(self._readers[topic]), topic)):
            self._fill(topic)
        is_level = False
        while not is_level:
            moves = [self._level(topic) for topic in sorted(self._readers)]
            is_level = not any(moves)
        owned: dict[str, list[Partition]] = {member: [] for member in self._class_of}
        for topic, owners in self._owned.items():
            for member, indexes in owners.items():
                owned[member].extend((topic, index) for index in indexes)
        return owned

    def _fill(self, topic: str) -> None:
        owners = self._owned[topic]
        taken = {index for indexes in owners.values() for index in indexes}
        if len(taken) == self._topics[topic]:
            return
        least = _LeastLoaded(self, self._readers[topic])
        for index in range(self._topics[topic]):
            if index not in taken:
                owners.setdefault(least.take(), []).append(index)

    def _level(self, topic: str) -> int:
        """How many partitions moved."""
        owners = self._owned[topic]
        lowest = min(self.least_of(number)[0] for number in self._readers[topic])
        most = [(-self._loads[member], member) for member in owners if self._loads[member] >= lowest + 2]
        if not most:
            return 0
        heapify(most)
        least = _LeastLoaded(self, self._readers[topic])
        count = 0
        while most:
            load, giver = heappop(most)
            if -load != self._loads[giver] or not owners[giver]:
                continue
            if -load < least.load() + 2:
                break
            receiver = least.take()
            owners.setdefault(receiver, []).append(owners[giver].pop())
            self.change(giver, -1)
            least.offer(giver)
            heappush(most, (-self._loads[giver], giver))
            heappush(most, (-self._loads[receiver], receiver))
            count += 1
        self._owned[topic] = {member: indexes for member, indexes in owners.items() if indexes}
        return count

    def class_of(self, member: str) -> int:
        return self._class_of[member]

    def load(self, member: str) -> int:
        return self._loads[member]

    def change(self, member: str, by: int) -> None:
        self._loads[member] += by
        heappush(self._least[self._class_of[member]], (self._loads[member], member))

    def least_of(self, number: int) -> tuple[int, str]:
        heap = self._least[number]
        while heap[0][0] != self._loads[heap[0][1]]:
            heappop(heap)
        return heap[0]


class _LeastLoaded:
    """The subscribers of one topic by load, while only this topic's partitions move."""

    def __init__(self, levelling: _Levelling, classes: list[int]) -> None:
        self._levelling = levelling
        self._heap = [levelling.least_of(number) for number in classes]
        heapify(self._heap)

    def load(self) -> int:
        while self._heap[0][0] != self._levelling.load(self._heap[0][1]):
            heappop(self._heap)
        return self._heap[0][0]

    def take(self) -> str:
        """The least loaded one, who now has one more."""
        self.load()
        _, member = heappop(self._heap)
        self._levelling.change(member, 1)
        heappush(self._heap, self._levelling.least_of(self._levelling.class_of(member)))
        return member

    def offer(self, member: str) -> None:
        """One whose load went down."""
        heappush(self._heap, (self._levelling.load(member), member))
