"""A hierarchical timing wheel: which records are due when, as pairs of numbers, sixteen bytes each.

Four levels of slots, each slot of a level as wide as all slots of the level below: 256 of 10 ms, 64 of 2.56 s, 64 of
2.73 min, 64 of 2.91 h: 7.76 days. What is due later lies in buckets of that width, which may be parked elsewhere.
A slot is emptied into the level below when there is only one slot's width left until it begins, block by block, so that
nobody waits for a slot of millions. Slots are found by their number since 1970, so there are no hands to turn, and a clock
that jumps does no harm. Within one tick of 10 ms records come out in the order in which they went in.

The wheel is an index: it may name what is no longer pending, and whoever takes from it looks that up.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, nsmallest
from itertools import chain
from typing import NamedTuple

TICK_MS = 10
SLOT_COUNTS = (256, 64, 64, 64)
SLOT_TICKS = (1, 256, 256 * 64, 256 * 64 * 64, 256 * 64 * 64 * 64)  # the last: of a bucket beyond the wheel
LEVEL_COUNT = len(SLOT_TICKS)
FAR = LEVEL_COUNT - 1
BUCKET_MS = SLOT_TICKS[FAR] * TICK_MS
BLOCK_NUMBERS = 2 * 4096  # two for each record

_REACH_TICKS = SLOT_TICKS[1:]  # of each level


class Due(NamedTuple):
    due_ms: int
    id: int


class Part(NamedTuple):
    """What a slot holds, in order; not to be changed."""

    level: int
    slot: int
    blocks: list[array[int]]

    @property
    def start_ms(self) -> int:
        """Nothing in it is due before."""
        return (self.slot * SLOT_TICKS[self.level] - 1) * TICK_MS + 1

    def pairs(self) -> Iterator[Due]:
        for block in self.blocks:
            numbers = iter(block)
            yield from map(Due, numbers, numbers)


class _Level:
    """Slots by their number. The heap has the number of each once."""

    def __init__(self) -> None:
        self.slots: dict[int, list[array[int]]] = {}
        self.order: list[int] = []

    def add(self, slot: int, due_ms: int, id: int) -> None:
        blocks = self.slots.get(slot)
        if blocks is None:
            self.slots[slot] = [array("q", (due_ms, id))]
            heappush(self.order, slot)
        elif len(blocks[-1]) >= BLOCK_NUMBERS:
            blocks.append(array("q", (due_ms, id)))
        else:
            blocks[-1].append(due_ms)
            blocks[-1].append(id)

    def put(self, slot: int, blocks: list[array[int]]) -> None:
        """Before what is there."""
        if slot not in self.slots:
            heappush(self.order, slot)
        self.slots[slot] = blocks + self.slots.get(slot, [])

    def drop_first(self) -> None:
        del self.slots[heappop(self.order)]

    def remove(self, slot: int) -> list[array[int]]:
        blocks = self.slots.pop(slot)
        self.order.remove(slot)
        heapify(self.order)
        return blocks


class Wheel:
    def __init__(self) -> None:
        self._levels = [_Level() for _ in SLOT_TICKS]
        self.parked: dict[int, int] = {}  # buckets that lie elsewhere, and how many records each has

    def add(self, due_ms: int, id: int, now_ms: int) -> None:
        tick = tick_of(due_ms)
        level = bisect_right(_REACH_TICKS, tick - now_ms // TICK_MS)
        # Behind those of the same tick that have not come down yet, so that order is kept.
        for above in range(FAR, level, -1):
            slot = tick // SLOT_TICKS[above]
            if slot in self._levels[above].slots or (above == FAR and slot in self.parked):
                level = above
                break
        self._levels[level].add(tick // SLOT_TICKS[level], due_ms, id)

    def next_ms(self) -> int | None:
        """When there is something to take or to move."""
        found: int | None = None
        for level, ticks in zip(self._levels, SLOT_TICKS, strict=True):
            if level.order:
                found = _earlier(found, _moves_ms(level.order[0], ticks))
        if self.parked:
            found = _earlier(found, _moves_ms(min(self.parked), SLOT_TICKS[FAR]))
        return found

    def wanted(self, now_ms: int) -> int | None:
        """A parked bucket whose time has come."""
        bucket = min(self.parked, default=None)
        return bucket if bucket is not None and _moves_ms(bucket, SLOT_TICKS[FAR]) <= now_ms else None

    def advance(self, now_ms: int) -> bool:
        """Move one block down, if any is to move: then there may be more."""
        for index in range(FAR, 0, -1):
            level = self._levels[index]
            if level.order and _moves_ms(level.order[0], SLOT_TICKS[index]) <= now_ms:
                if index == FAR and level.order[0] in self.parked:
                    continue  # what is parked was there before
                self._move_down(level, index)
                return True
        return False

    def take(self, now_ms: int, count_max: int) -> list[Due]:
        """What is due, in order. Call it when there is nothing to move."""
        level = self._levels[0]
        found: list[Due] = []
        while len(found) < count_max and level.order and level.order[0] * TICK_MS <= now_ms:
            blocks = level.slots[level.order[0]]
            part = blocks[0][: 2 * (count_max - len(found))]
            numbers = iter(part)
            found += map(Due, numbers, numbers)
            if len(part) < len(blocks[0]):
                blocks[0] = blocks[0][len(part) :]
            elif len(blocks) > 1:
                del blocks[0]
            else:
                level.drop_first()
        return found

    def first_ids(self) -> list[int]:
        """Of what is on the first level, due in the next seconds, and of what comes down to it next."""
        first, second = self._levels[:2]
        slots = [first.slots[slot] for slot in sorted(first.slots)]
        slots += [second.slots[slot] for slot in second.order[:1]]
        return [id for blocks in slots for block in blocks for id in block[1::2]]

    def _move_down(self, level: _Level, index: int) -> None:
        blocks = level.slots[level.order[0]]
        below, ticks = self._levels[index - 1], SLOT_TICKS[index - 1]
        numbers = iter(blocks.pop(0))
        for due_ms, id in zip(numbers, numbers, strict=True):
            below.add(-(-due_ms // TICK_MS) // ticks, due_ms, id)
        if not blocks:
            level.drop_first()

    # ---------------------------------------------------------------- what it holds, slot by slot

    def parts(self) -> list[Part]:
        """Everything that is not parked, the soonest slots of each level first. It stays as it is while the wheel turns:
        full blocks never change, and the others are copied."""
        return [
            Part(index, slot, [*blocks[:-1], blocks[-1][:]])
            for index, level in enumerate(self._levels)
            for slot, blocks in sorted(level.slots.items())
        ]

    def restore(self, part: Part) -> None:
        """Before what is there."""
        self._levels[part.level].put(part.slot, part.blocks)

    def park(self, bucket: int) -> Part:
        """Let go of a bucket beyond the wheel: until `unpark` it lies elsewhere."""
        part = Part(FAR, bucket, self._levels[FAR].remove(bucket))
        self.parked[bucket] = self.parked.get(bucket, 0) + count_of(part)
        return part

    def take_back(self, part: Part) -> None:
        """It could not be parked."""
        self.parked[part.slot] -= count_of(part)
        if not self.parked[part.slot]:
            del self.parked[part.slot]
        self.restore(part)

    def unpark(self, bucket: int, blocks: list[array[int]]) -> None:
        del self.parked[bucket]
        if blocks:
            self._levels[FAR].put(bucket, blocks)

    def replace(self, cleaned: Mapping[int, array[int]]) -> None:
        """Put others in the place of full blocks, which are found by their identity: some have moved on meanwhile."""
        for level in self._levels:
            for slot, blocks in level.slots.items():
                level.slots[slot] = [*(cleaned.get(id(block), block) for block in blocks[:-1]), blocks[-1]]

    def far_buckets(self, now_ms: int) -> list[int]:
        """Those that may be parked: their time has not come."""
        slots = self._levels[FAR].slots
        return [bucket for bucket in sorted(slots) if _moves_ms(bucket, SLOT_TICKS[FAR]) > now_ms]


class Source(NamedTuple):
    """Where records are that are not due before an instant."""

    start_ms: int
    read: Callable[[], Iterable[Due]]


def soonest(sources: Iterable[Source], count: int, is_pending: Callable[[int], bool]) -> list[Due]:
    """The first of them, in order; no more sources are read than that takes."""
    found: list[Due] = []
    for source in sorted(sources, key=lambda one: one.start_ms):
        if len(found) >= count and found[-1].due_ms < source.start_ms:
            break
        fresh = (one for one in source.read() if is_pending(one.id))
        found = nsmallest(count, chain(found, fresh))
    return found


def tick_of(due_ms: int) -> int:
    return -(-due_ms // TICK_MS)


def bucket_of(due_ms: int) -> int:
    return tick_of(due_ms) // SLOT_TICKS[FAR]


def count_of(part: Part) -> int:
    return sum(map(len, part.blocks)) // 2


def _moves_ms(slot: int, ticks: int) -> int:
    """When a slot is taken from, or for the levels above the first is emptied: one slot's width ahead."""
    return (slot if ticks == 1 else (slot - 1) * ticks) * TICK_MS


def _earlier(first: int | None, second: int) -> int:
    return second if first is None or second < first else first
