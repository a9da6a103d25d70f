"""One group's view of one partition: what it has met and not finished yet, and how far each lane has been read.

Only unfinished records have an entry. A record that lies before the cursor of its lane and has no entry is done, so a
record that is held for hours costs one entry and not a set of all that were finished behind it. The acknowledged prefix,
which is the group's committed offset, ends at the first entry or at the first cursor.

Only `apply_*` change what the log says; the heaps are a memory of it that is put right when somebody looks.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from msgspec import Struct

from goqueue.core.deadlines import Deadlines
from goqueue.core.lease.events import Extended, Leased, Postponed, Run, offsets_of, runs_of
from goqueue.core.lease.leases import Leases
from goqueue.model.priority import LANE_COUNT, NORMAL

NO_KEY = -1
UNKNOWN_KEY = -2  # of a record that was given while nobody asked for the order of keys
_WAKE_COUNT = 1_000  # records of a lane that one look wakes at the least, if their time has come
_STALE_COUNT_MAX = 64  # offsets without an entry, beyond one for each with one
_PUT_OFF_MS_MIN = 1_000
_PUT_OFF_MS_MAX = 30_000


class Entry(Struct, gc=False):
    """A record that is leased, or waits for `until_ms`. A held one waits for the record of its key that is before it."""

    lane: int
    key: int
    deliveries: int = 0
    is_leased: bool = False
    is_held: bool = False
    until_ms: int = 0
    serial: int = 0  # of the lease
    member: str = ""  # who has it, or had it last
    first_ms: int = 0
    last_ms: int = 0
    reason: str = ""


class Window:
    def __init__(self, number: int, group_id: str, start: int) -> None:
        self.number = number
        self.group_id = group_id
        self.incarnation = 0  # how often the group was sent elsewhere; receipts know it
        self.keeps_key_order = False  # as of the last poll; not in the log
        self.settled_count = 0
        self.moved_count = 0
        self._begin(start)

    def _begin(self, start: int) -> None:
        self.cursors: tuple[int, ...] = (start,) * LANE_COUNT
        self.entries: dict[int, Entry] = {}
        self.in_flight: dict[str, int] = {}  # by member
        self.in_flight_count = 0
        self.entry_counts = [0] * LANE_COUNT
        self.leased_counts = [0] * LANE_COUNT  # of them
        self._leases = Leases()
        self._waiting = [Deadlines[int]() for _ in range(LANE_COUNT)]  # by offset
        self._ready: list[list[int]] = [[] for _ in range(LANE_COUNT)]  # offsets whose time has come
        self._lowest: list[int] = []  # a heap of all offsets with an entry, and of some that had one
        self._keys: dict[int, deque[int]] = {}  # the unfinished records of a key, in order
        self._known_key_count = 0  # entries of which it is known what key they have, if any

    # ---------------------------------------------------------------- looking

    @property
    def committed_offset(self) -> int:
        """Everything before it is finished."""
        while self._lowest and self._lowest[0] not in self.entries:
            heappop(self._lowest)
        first = min(self.cursors)
        return min(self._lowest[0], first) if self._lowest else first

    def next_ready_ms(self) -> int | None:
        """When a record that waits may be given again."""
        times = [at_ms for waiting in self._waiting if (at_ms := waiting.next_ms()) is not None]
        return min(times, default=None)

    def next_deadline_ms(self) -> int | None:
        """When a lease ends, or is to be looked at again."""
        return self._leases.next_ms()

    def ready(self, lane: int, now_ms: int, count_max: int) -> list[int]:
        """What may be given again, lowest offset first. Of very many whose time has come at once, those whose time came
        first."""
        self._wake(lane, now_ms, max(count_max, _WAKE_COUNT))
        heap, found = self._ready[lane], list[int]()
        while heap and len(found) < count_max:
            offset = heappop(heap)
            if not self._is_waiting(offset) or (found and found[-1] == offset):
                continue
            if self.entries[offset].until_ms <= now_ms:
                found.append(offset)
            else:  # the clock was set back
                self._waiting[lane].set(offset, self.entries[offset].until_ms)
        for offset in found:  # they leave when a lease says so
            heappush(heap, offset)
        return found

    def is_any_ready(self, now_ms: int) -> bool:
        return any(self.ready(lane, now_ms, 1) for lane in range(LANE_COUNT))

    @property
    def has_keys(self) -> bool:
        """Whether records may wait for others of their key."""
        return self.keeps_key_order or bool(self._keys)

    @property
    def gives_new(self) -> bool:
        """Not where the order of keys is asked for while records are unfinished that were given before it was: nobody knows
        their keys, and a new one might have the same."""
        return not (self.keeps_key_order and self.unknown_key_count)

    @property
    def unknown_key_count(self) -> int:
        return len(self.entries) - self._known_key_count

    def is_busy(self, key: int) -> bool:
        return key in self._keys

    def expired(self, now_ms: int, count_max: int) -> list[int]:
        """Offsets whose lease is over: about so many, for a lease ends as a whole."""
        found: list[int] = []
        for serial in self._leases.due(now_ms, count_max):
            found += self._left_of(serial)
            if len(found) >= count_max:
                break
        return sorted(found)

    def held_by(self, member: str) -> list[int]:
        return sorted(
            offset
            for serial in self._leases.of_member(member)
            for offset in self._left_of(serial)
            if self.entries[offset].member == member
        )

    def put_off(self, offsets: Iterable[int], now_ms: int) -> None:
        """Their leases are over and cannot end yet. They are looked at again later, the longer it lasts the later, so that
        others have their turn. Not in the log: after a restart they are looked at again at once."""
        until_ms = {entry.serial: entry.until_ms for entry in map(self.entries.__getitem__, offsets)}
        for serial, over_ms in until_ms.items():
            waits_ms = min(max(now_ms - over_ms, _PUT_OFF_MS_MIN), _PUT_OFF_MS_MAX)
            self._leases.put_off(serial, now_ms + waits_ms)

    def _left_of(self, serial: int) -> list[int]:
        return [offset for offset in offsets_of(self._leases.runs(serial)) if self._is_in(offset, serial)]

    def _is_in(self, offset: int, serial: int) -> bool:
        entry = self.entries.get(offset)
        return entry is not None and entry.is_leased and entry.serial == serial

    def _wake(self, lane: int, now_ms: int, count_max: int) -> None:
        waiting, ready = self._waiting[lane], self._ready[lane]
        while count_max and (offset := waiting.first_due(now_ms)) is not None:
            waiting.cancel(offset)
            heappush(ready, offset)
            count_max -= 1

    def _is_waiting(self, offset: int) -> bool:
        entry = self.entries.get(offset)
        return entry is not None and not (entry.is_leased or entry.is_held)

    # ---------------------------------------------------------------- applying

    def apply_leased(self, event: Leased) -> None:
        keys = iter(event.keys)
        serial, member, now_ms, until_ms = event.serial, event.member, event.now_ms, event.deadline_ms
        leased_count = 0
        for start, count, lane, deliveries in event.seen:
            leased_count += count
            self.leased_counts[lane] += count
            for offset in range(start, start + count):
                key = next(keys, UNKNOWN_KEY)
                entry = self.entries.get(offset)
                if entry is None:
                    entry = Entry(
                        lane, key, deliveries, True, False, until_ms, serial, member, now_ms, now_ms
                    )
                    self._add(offset, entry)
                    continue
                self._waiting[lane].cancel(offset)
                entry.deliveries = deliveries
                entry.is_leased = True
                entry.serial = serial
                entry.member = member
                entry.until_ms = until_ms
                entry.first_ms = entry.first_ms or now_ms
                entry.last_ms = now_ms
        for offset, lane, key in event.held:
            self._add(offset, Entry(lane, key, is_held=True))
        runs = [Run(one.start, one.length) for one in event.seen]
        self._leases.begin(serial, until_ms, runs, (member,), leased_count)
        self._count(member, leased_count)
        self.cursors = event.cursors

    def apply_extended(self, event: Extended) -> None:
        members: list[str] = []
        for offset in offsets_of(event.runs):
            entry = self.entries[offset]
            members.append(entry.member)
            before, entry.serial = entry.serial, event.serial
            entry.until_ms = event.deadline_ms
            self._leave_lease(before, 1)
        self._leases.begin(
            event.serial, event.deadline_ms, event.runs, tuple(dict.fromkeys(members)), len(members)
        )

    def apply_settled(self, offsets: Iterable[int], cursors: tuple[int, ...]) -> None:
        self.settled_count += self._remove(offsets)
        if cursors:
            self.cursors = cursors

    def apply_moving(self, offsets: Iterable[int]) -> None:
        self.moved_count += self._remove(offsets)

    def apply_postponed(self, event: Postponed) -> None:
        for offset, until_ms in event.items:
            entry = self.entries[offset]
            self._release(entry)
            entry.until_ms = until_ms
            entry.reason = event.reason or entry.reason
            self._waiting[entry.lane].set(offset, until_ms)

    def apply_trimmed(self, start: int) -> None:
        self._remove([offset for offset in self.entries if offset < start])
        self.cursors = tuple(max(cursor, start) for cursor in self.cursors)

    def apply_sought(self, start: int) -> None:
        self.incarnation += 1
        self._begin(start)

    def restore(self, offset: int, entry: Entry) -> None:
        """Of a snapshot; `restored` ends it."""
        self.entries[offset] = entry
        self.entry_counts[entry.lane] += 1
        if entry.key != UNKNOWN_KEY:
            self._queue_key(entry.key, offset)
        if entry.is_leased:
            self._leases.restore(entry.serial, entry.until_ms, offset, entry.member)
            self.leased_counts[entry.lane] += 1
            self._count(entry.member, 1)
        elif not entry.is_held:
            self._waiting[entry.lane].set(offset, entry.until_ms)

    def restored(self) -> None:
        self._build_lowest()

    # ---------------------------------------------------------------- behind a hole in the log

    def is_leased(self, offset: int) -> bool:
        entry = self.entries.get(offset)
        return entry is not None and entry.is_leased

    def cut(self, end: int) -> bool:
        """The partition ends there, and others may come in the place of what it has lost: forget that. Receipts are void, or
        they would speak of those. False if it knows of nothing behind the end."""
        if max(self.cursors) <= end:
            return False
        self._remove([offset for offset in self.entries if offset >= end])
        self.cursors = tuple(min(cursor, end) for cursor in self.cursors)
        self.incarnation += 1
        return True

    def meet(self, offset: int) -> None:
        """It was, though nothing says how."""
        self._add(offset, Entry(NORMAL, NO_KEY))

    def free(self, offset: int) -> None:
        """Whatever is known of its last lease is out of date."""
        entry = self.entries.get(offset)
        if entry is not None:
            self._release(entry)
            entry.is_held = False

    def drop(self, offset: int) -> None:
        if offset in self.entries:
            self._remove([offset])

    def free_keys(self) -> None:
        """A record that waits for one that is not there any more need not wait."""
        for queue in self._keys.values():
            first = self.entries[queue[0]]
            if first.is_held and all(self.entries[offset].is_held for offset in queue):
                first.is_held = False
                self._waiting[first.lane].set(queue[0], first.until_ms)

    # ---------------------------------------------------------------- pieces

    def _add(self, offset: int, entry: Entry) -> None:
        self.entries[offset] = entry
        self.entry_counts[entry.lane] += 1
        heappush(self._lowest, offset)
        if entry.key != UNKNOWN_KEY:
            self._queue_key(entry.key, offset)

    def _remove(self, offsets: Iterable[int]) -> int:
        """How many that were."""
        count = left_count = 0
        serial, member = 0, ""  # of those that leave together
        for offset in offsets:
            count += 1
            entry = self.entries.pop(offset)
            self.entry_counts[entry.lane] -= 1
            if entry.is_leased:
                self.leased_counts[entry.lane] -= 1
                if entry.serial != serial or entry.member != member:
                    self._leave(serial, member, left_count)
                    serial, member, left_count = entry.serial, entry.member, 0
                left_count += 1
            else:
                self._waiting[entry.lane].cancel(offset)
            if entry.key != UNKNOWN_KEY:
                self._leave_key(entry.key, offset, is_free=not entry.is_held)
        self._leave(serial, member, left_count)
        if len(self._lowest) > 2 * len(self.entries) + _STALE_COUNT_MAX:
            self._build_lowest()
        return count

    def _build_lowest(self) -> None:
        self._lowest = list(self.entries)
        heapify(self._lowest)

    def _queue_key(self, key: int, offset: int) -> None:
        self._known_key_count += 1
        if key == NO_KEY:
            return
        queue = self._keys.setdefault(key, deque())
        if queue and offset < queue[-1]:  # one of another lane was met before it
            insort(queue, offset)
        else:
            queue.append(offset)

    def _leave_key(self, key: int, offset: int, *, is_free: bool) -> None:
        """If it was the one that others of its key wait for, the lowest of them may go."""
        self._known_key_count -= 1
        if key == NO_KEY:
            return
        queue = self._keys[key]
        queue.remove(offset)  # nearly always the first
        if not queue:
            del self._keys[key]
        elif is_free:
            follower = self.entries[queue[0]]
            if follower.is_held:
                follower.is_held = False
                self._waiting[follower.lane].set(queue[0], follower.until_ms)

    def _release(self, entry: Entry) -> None:
        if entry.is_leased:
            entry.is_leased = False
            self.leased_counts[entry.lane] -= 1
            self._leave(entry.serial, entry.member, 1)

    def _leave(self, serial: int, member: str, count: int) -> None:
        """So many of what the member has in a lease."""
        if count:
            self._count(member, -count)
            self._leave_lease(serial, count)

    def _leave_lease(self, serial: int, count: int) -> None:
        if self._leases.leave(serial, count):
            self._leases.replace_runs(serial, runs_of(sorted(self._left_of(serial))))

    def _count(self, member: str, by: int) -> None:
        held = self.in_flight.get(member, 0) + by
        if held:
            self.in_flight[member] = held
        else:
            self.in_flight.pop(member, None)
        self.in_flight_count += by
