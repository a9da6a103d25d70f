"""Partitions come and go while the records of each key stay in order: topics with `scaling=keyed`.

Growth takes a topic to a multiple of its partitions, so that every new partition takes its keys from one old one, its
*parent*. The leader of each parent says where its log ended when it began to send such keys on: its *fence*. Shrinking
goes to a divisor: first every remaining partition is fenced, and from there on shows nothing until it is released;
then the others send all that comes to their parents and say where they end. Either way there are *gates*: a group is
not given a partition before it has read another one up to an offset.

    growing from 3 to 6                          shrinking from 6 to 3

    0 ──────────┤ fence    keys of 0 only        0 ──────────┤ fence    keys of 0 and 3
                └ gate: 3 after 0                            └ gate: 0 after 3
    3           ├───────── keys of 3             3 ────────────┤ end, then nothing
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct, structs

from goqueue.model.errors import InvalidPartitions

Stage = Literal["steady", "growing", "merging", "draining"]


class Gate(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A group that has not read partition `behind` up to the offset `until` is not given partition `blocked`."""

    blocked: int
    behind: int
    until: int

    @property
    def is_merging(self) -> bool:
        """Growth goes from lower numbers to higher ones, shrinking back."""
        return self.behind > self.blocked


class Hold(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Nothing of the partition from this offset on is shown to anybody for now."""

    partition: int
    offset: int


class Birth(Struct, frozen=True, array_like=True):
    """The partitions from this one on began in this leader epoch: what has an older one was in others of their number."""

    first: int
    epoch: int


class Scaling(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where a topic with `scaling=keyed` stands. Merging are those whose old partitions do not all have an end yet, or whose
    groups do not all know of it; draining those that only wait for the groups to read what is left."""

    key_count: int  # keys are spread over so many partitions
    old_count: int  # and were over so many before the last change
    stage: Stage = "steady"
    unfenced: tuple[int, ...] = ()  # partitions whose leaders have not said yet where the old part ends
    gates: tuple[Gate, ...] = ()
    holds: tuple[Hold, ...] = ()
    drained: tuple[int, ...] = ()  # of those that go: nothing waits there for its time, or for a queue group
    next_epoch: int = 0  # the leader epoch of new partitions: above those of any that had their number before
    births: tuple[Birth, ...] = ()
    discards_read: bool = False  # those that go do so when every group has read them, whatever retention says

    @property
    def partition_count(self) -> int:
        """Of all that are there, those that go included."""
        return max(self.key_count, self.old_count)

    @property
    def begun_count(self) -> int:
        """Of those that anybody can have read: none that are new before the first of the old ones has its fence."""
        has_begun = self.stage != "growing" or len(self.unfenced) < self.old_count
        return self.partition_count if has_begun else self.old_count

    @property
    def is_shrinking(self) -> bool:
        return self.stage in ("merging", "draining")

    def home(self, partition: int, hashed: int | None) -> int | None:
        """Where a record that has come to a partition is to be appended, by the hash of its key (None: it has no key). None: that
        is not decided yet, or the partition is no more, and whoever sent it has to ask for metadata and try again."""
        if partition >= self.partition_count:
            return None
        if self.is_shrinking:
            return self._home_while_shrinking(partition, hashed)
        target = partition if hashed is None else hashed % self.key_count
        return None if self._is_closed(target) else target

    def _home_while_shrinking(self, partition: int, hashed: int | None) -> int | None:
        old = partition if hashed is None else hashed % self.old_count
        target = old % self.key_count
        if target in self.unfenced:
            return old
        # Until the old home has said where it ends, only what it sends on itself is after all that it has.
        return None if old in self.unfenced and old != partition else target

    def _is_closed(self, partition: int) -> bool:
        """It is new, and does not take anything yet."""
        return (
            self.stage == "growing"
            and partition >= self.old_count
            and self._parent(partition) in self.unfenced
        )

    def modulus(self, partition: int) -> int | None:
        """If a number: at home in the partition are the keys whose hash, modulo that, is the partition's number, and whatever has no
        key. Else each record has to be looked at."""
        if partition >= self.partition_count:
            return None
        if not self.is_shrinking:
            return None if self._is_closed(partition) else self.key_count
        target = self._parent(partition)
        if target in self.unfenced:
            return self.old_count
        return None if self.unfenced or partition != target else self.key_count

    def has_moved(self, partition: int, hashed: int) -> bool:
        """Whether a key that is at home in the partition was elsewhere before the last change."""
        return hashed % self.old_count != partition

    def is_open(self, partition: int) -> bool:
        """Whether records without a key may go there."""
        return self.home(partition, None) == partition

    def first_epoch(self, partition: int) -> int:
        """A log that has only older leader epochs is of a partition that had the number before and is no more."""
        return max((birth.epoch for birth in self.births if birth.first <= partition), default=0)

    def _parent(self, child: int) -> int:
        return child % min(self.key_count, self.old_count)

    def hold_of(self, partition: int) -> int | None:
        """The offset from which on the partition shows nothing."""
        return next((hold.offset for hold in self.holds if hold.partition == partition), None)

    def may_fence(self, partition: int) -> bool:
        """Whether it is the turn of the partition's leader to say where the old part ends: a partition that goes away does so
        after its parent has."""
        if partition not in self.unfenced:
            return False
        return (
            not self.is_shrinking
            or partition < self.key_count
            or self._parent(partition) not in self.unfenced
        )

    @property
    def undrained(self) -> tuple[int, ...]:
        """Those that go and in which something may still wait."""
        if not self.is_shrinking:
            return ()
        return tuple(each for each in range(self.key_count, self.old_count) if each not in self.drained)

    def is_grown(self, partition: int) -> bool:
        """Whether its keys were in another one before."""
        return any(not gate.is_merging for gate in self.gates_of(partition))

    def ancestors(self, partition: int) -> Iterator[int]:
        """The partitions that its keys were in before it came by growth, the youngest first."""
        yield from _chain(self._parents(), partition)

    def _parents(self) -> dict[int, int]:
        return {gate.blocked: gate.behind for gate in self.gates if not gate.is_merging}

    def earlier_homes(self, partition: int, home: int) -> Iterator[int]:
        """The partitions that may hold a record which came to a partition before and was sent on, for it lived there then, and not in its
        home of now. Those among them that still take such records are left out."""
        parents = self._parents()
        if partition != home:
            yield from (each for each in _chain(parents, home) if each != partition)
        if self.is_shrinking and home < self.key_count:
            for child in range(home + self.key_count, self.old_count, self.key_count):
                if child not in self.unfenced:
                    lived = (child, *_chain(parents, child))
                    yield from (each for each in lived if each not in (partition, home))

    def decides_alike(self, other: Scaling) -> bool:
        """Whether keys live, and have lived, where the other says: it may differ in what groups have read."""
        return (self.key_count, self.old_count, self.is_shrinking, self.unfenced, self.gates) == (
            other.key_count,
            other.old_count,
            other.is_shrinking,
            other.unfenced,
            other.gates,
        )

    def gates_of(self, blocked: int) -> Iterator[Gate]:
        return (gate for gate in self.gates if gate.blocked == blocked)


def _chain(parents: Mapping[int, int], partition: int) -> Iterator[int]:
    while partition in parents:
        partition = parents[partition]
        yield partition


def begin(partition_count: int) -> Scaling:
    """Of a new topic."""
    return Scaling(key_count=partition_count, old_count=partition_count)


def grow(topic: str, now: Scaling, partition_count: int) -> Scaling:
    old = now.key_count
    _refuse_while_busy(topic, now)
    if partition_count % old:
        below = partition_count - partition_count % old
        raise InvalidPartitions(
            f"topic {topic!r} has scaling=keyed and {old} partitions: it grows to a multiple of that, "
            f"for instance {max(below, 2 * old)} or {max(below, 2 * old) + old}, not {partition_count}",
            partitions=partition_count,
            partition_count=old,
        )
    births = (*now.births, Birth(old, now.next_epoch)) if now.next_epoch else now.births
    return structs.replace(
        now,
        key_count=partition_count,
        old_count=old,
        stage="growing",
        unfenced=tuple(range(old)),
        births=births,
    )


def shrink(topic: str, now: Scaling, partition_count: int, *, discards_read: bool = False) -> Scaling:
    old = now.key_count
    if now.is_shrinking and partition_count == old and discards_read and not now.discards_read:
        return structs.replace(now, discards_read=True)
    _refuse_while_busy(topic, now)
    if not 1 <= partition_count < old or old % partition_count:
        divisors = [str(each) for each in range(1, old) if old % each == 0]
        raise InvalidPartitions(
            f"topic {topic!r} has scaling=keyed and {old} partitions: it shrinks to {' or '.join(divisors) or 'no other count'}, "
            f"not {partition_count}",
            partitions=partition_count,
            partition_count=old,
        )
    return structs.replace(
        now,
        key_count=partition_count,
        old_count=old,
        stage="merging",
        unfenced=tuple(range(old)),
        discards_read=discards_read,
    )


def fence(now: Scaling, partition: int, offset: int) -> Scaling:
    """The leader of a partition, whose turn it is (`may_fence`), says where the old part ends."""
    unfenced = tuple(each for each in now.unfenced if each != partition)
    if not now.is_shrinking:
        children = range(partition + now.old_count, now.key_count, now.old_count)
        gates = tuple(Gate(child, partition, offset) for child in children)
        stage: Stage = "growing" if unfenced else "steady"
        return structs.replace(now, stage=stage, unfenced=unfenced, gates=(*now.gates, *gates))
    if partition < now.key_count:
        return structs.replace(now, unfenced=unfenced, holds=(*now.holds, Hold(partition, offset)))
    gate = Gate(partition % now.key_count, partition, offset)
    return structs.replace(now, unfenced=unfenced, gates=(*now.gates, gate))


def release(now: Scaling) -> Scaling:
    """Every group knows its gates: what was held is shown."""
    return structs.replace(now, stage="draining", holds=())


def finish(now: Scaling) -> Scaling:
    """What was to go is read to its end by every group, nothing waits there, and it is no more."""
    count = now.key_count
    gates = tuple(gate for gate in now.gates if gate.blocked < count and gate.behind < count)
    births = tuple(birth for birth in now.births if birth.first < count)
    return structs.replace(
        now, old_count=count, stage="steady", gates=gates, drained=(), births=births, discards_read=False
    )


def drain(now: Scaling, partition: int) -> Scaling:
    """The leader of a partition that goes says that nothing waits there any more."""
    return structs.replace(now, drained=(*now.drained, partition))


def _refuse_while_busy(topic: str, now: Scaling) -> None:
    if now.stage != "steady":
        hint = ""
        if now.is_shrinking and not now.discards_read:
            hint = "; with discard_read and the same count those that go do so as soon as every group has read them"
        raise InvalidPartitions(
            f"the partitions of topic {topic!r} are changing from {now.old_count} to {now.key_count}; "
            f"that has to come to its end first{hint}",
            partition_count=now.old_count,
        )
