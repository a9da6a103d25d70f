"""What may be done with leases. Each looks at a ledger and gives events and an answer; nothing changes until the events
are written and applied."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from goqueue.core.lease.events import (
    Change,
    Closed,
    Extended,
    Leased,
    Opened,
    Postponed,
    Seen,
    Settled,
    Sought,
    Trimmed,
    runs_of,
)
from goqueue.core.lease.ledger import Ledger
from goqueue.core.lease.moves import REASON_LENGTH_MAX, Moves
from goqueue.core.lease.policy import LeasePolicy
from goqueue.core.lease.window import NO_KEY, Entry, Window
from goqueue.model.errors import (
    GoQueueError,
    InvalidVisibility,
    LeaseExpired,
    LeaseSuperseded,
    LimitExceeded,
    MessageSettled,
    ReceiptNotFound,
)
from goqueue.model.priority import LANE_COUNT

VISIBILITY_MS_MAX: Final = 12 * 3_600_000
ENTRY_COUNT_MAX: Final = 1_050_000  # unfinished records of one group in one partition; about 300 bytes each
RECORDS_PER_TICK: Final = 10_000  # some milliseconds of work; others wait meanwhile
_EXHAUSTED: Final = "retries exhausted"
_REJECTED: Final = "rejected"
_TIMED_OUT: Final = "the visibility timeout passed"
_LEFT: Final = "its consumer left"

R = TypeVar("R")


class Decision(Struct, Generic[R], frozen=True):
    reply: R
    events: list[Change] = []


class Fresh(Struct, frozen=True):
    """What comes next in a lane, in order. Behind the last of it the lane has been looked at up to `end`."""

    offsets: Sequence[int]
    end: int
    keys: Sequence[int] = ()  # a hash of each key, where the order of keys is kept


Offer = tuple[Fresh, ...]  # by lane


class Given(Struct, frozen=True, gc=False):
    offset: int
    deliveries: int
    lane: int


class Claim(Struct, frozen=True, gc=False):
    """Who says that it holds a record: by the count of its delivery (a receipt), or by its name."""

    offset: int
    deliveries: int | None = None
    member: str | None = None


class Nacked(Struct, frozen=True, gc=False):
    is_dead: bool
    deliveries: int
    visible_ms: int  # when it may be given again


class Extension(Struct, frozen=True):
    deadline_ms: int


PolicyOf = Callable[[str], LeasePolicy]


def open_group(ledger: Ledger, group_id: str, start: int) -> Decision[int]:
    """The number of the group."""
    known = ledger.numbers.get(group_id)
    if known is not None:
        return Decision(known)
    number = ledger.group_number + 1
    return Decision(number, [Opened(number, group_id, start)])


def close_group(ledger: Ledger, group_id: str) -> Decision[None]:
    number = ledger.numbers.get(group_id)
    return Decision(None, [] if number is None else [Closed(number)])


def seek(window: Window, start: int) -> Decision[None]:
    return Decision(None, [Sought(window.number, start)])


def trim(window: Window, log_start: int) -> Decision[None]:
    """Retention has removed records that the group has not finished."""
    return Decision(None, [] if window.committed_offset >= log_start else [Trimmed(window.number, log_start)])


# -------------------------------------------------------------------- giving


def lease(
    ledger: Ledger,
    window: Window,
    member: str,
    offer: Offer,
    *,
    limit: int,
    visibility_ms: int,
    now_ms: int,
    policy: LeasePolicy,
    readable: Container[int] | None = None,
) -> Decision[list[Given]]:
    """Up to `limit` records: those that have come back first, if they are readable, then new ones, as the lanes' turn is."""
    window.keeps_key_order = policy.keeps_key_order
    is_full = len(window.entries) + limit > ENTRY_COUNT_MAX
    if is_full or not window.gives_new:  # what has come back must go out all the same, or it would stay so
        offer = tuple(Fresh((), cursor) for cursor in window.cursors)
    ready = [window.ready(lane, now_ms, limit) for lane in range(LANE_COUNT)]
    if readable is not None:
        ready = [[offset for offset in offsets if offset in readable] for offsets in ready]
    picking = _Picking(window, offer, ready, keeps_key_order=policy.keeps_key_order)
    # The lanes pay at once: if the lease cannot be written, others had their turn, and nothing is lost.
    for lane, count in enumerate(ledger.lanes_of(window).take(picking.depths, limit, now_ms)):
        picking.take(lane, count)
    if is_full and not picking.given:
        raise LimitExceeded(
            f"group {window.group_id!r} has {len(window.entries)} unfinished records in a partition; at most "
            f"{ENTRY_COUNT_MAX} may be",
            group=window.group_id,
            count_max=ENTRY_COUNT_MAX,
        )
    if not picking.given and not picking.held:
        return Decision([], _passed_by(window, picking.cursors()))
    event = Leased(
        window.number,
        ledger.serial + 1,
        member,
        now_ms,
        now_ms + visibility_ms,
        _seen(picking.given),
        picking.cursors(),
        picking.keys if policy.keeps_key_order else [],
        picking.held,
    )
    return Decision(picking.given, [event])


def _passed_by(window: Window, cursors: tuple[int, ...]) -> list[Change]:
    """There was nothing for the group in what was looked at: that is finished, too. It is worth an event only if the group's
    committed offset may move by it."""
    return [Settled(window.number, [], cursors)] if min(cursors) > min(window.cursors) else []


class _Picking:
    """One turn: what is taken from each lane, and where that leaves its cursor."""

    def __init__(
        self, window: Window, offer: Offer, ready: Sequence[Sequence[int]], *, keeps_key_order: bool
    ) -> None:
        self._window = window
        self._offer = offer
        self._ready = ready  # what has come back, by lane
        self._keeps_key_order = keeps_key_order
        self._taken_counts = [0] * LANE_COUNT  # of what was offered
        self._busy: set[int] = set()  # keys of this turn
        self.depths = [len(self._ready[lane]) + len(offer[lane].offsets) for lane in range(LANE_COUNT)]
        self.given: list[Given] = []
        self.keys: list[int] = []
        self.held: list[tuple[int, int, int]] = []

    def take(self, lane: int, count: int) -> None:
        for offset in self._ready[lane][:count]:
            entry = self._window.entries[offset]
            self.given.append(Given(offset, entry.deliveries + 1, lane))
            self.keys.append(entry.key)
        left = count - len(self._ready[lane])
        if left <= 0:
            return
        if self._keeps_key_order:
            self._take_in_order(lane, left)
            return
        offsets = self._offer[lane].offsets[:left]
        self.given += [Given(offset, 1, lane) for offset in offsets]
        self._taken_counts[lane] = len(offsets)

    def _take_in_order(self, lane: int, count: int) -> None:
        """A record whose key is under way is passed by and held."""
        fresh = self._offer[lane]
        for offset, key in zip(fresh.offsets, fresh.keys, strict=True):
            if not count:
                break
            self._taken_counts[lane] += 1
            if key != NO_KEY and (key in self._busy or self._window.is_busy(key)):
                self.held.append((offset, lane, key))
                continue
            self._busy.add(key)
            self.given.append(Given(offset, 1, lane))
            self.keys.append(key)
            count -= 1

    def cursors(self) -> tuple[int, ...]:
        """Of each lane: its next record, or where it was looked at in vain."""
        return tuple(
            fresh.offsets[taken] if taken < len(fresh.offsets) else fresh.end
            for fresh, taken in zip(self._offer, self._taken_counts, strict=True)
        )


def _seen(given: Sequence[Given]) -> list[Seen]:
    seen: list[Seen] = []
    start = end = lane = deliveries = -1
    for one in given:
        if one.offset == end and one.lane == lane and one.deliveries == deliveries:
            end += 1
            continue
        if end > start:
            seen.append(Seen(start, end - start, lane, deliveries))
        start, end, lane, deliveries = one.offset, one.offset + 1, one.lane, one.deliveries
    if end > start:
        seen.append(Seen(start, end - start, lane, deliveries))
    return seen


# -------------------------------------------------------------------- finishing


def settle(
    window: Window, claims: Sequence[Claim], *, now_ms: int, cursors: tuple[int, ...] = ()
) -> Decision[list[GoQueueError | None]]:
    """Acknowledge. What is wrong with a claim is its answer; the others count."""
    replies: list[GoQueueError | None] = []
    offsets: set[int] = set()
    for claim in claims:
        found = _held(window, claim, now_ms)
        if not isinstance(found, Entry):
            replies.append(found)
        elif claim.offset in offsets:
            replies.append(_settled(window, claim))
        else:
            offsets.add(claim.offset)
            replies.append(None)
    events: list[Change] = [Settled(window.number, runs_of(sorted(offsets)), cursors)] if offsets else []
    return Decision(replies, events)


def settle_missing(window: Window, offsets: Sequence[int]) -> Decision[None]:
    """Records that are no longer in the log: there is nothing to give."""
    known = sorted(offset for offset in set(offsets) if offset in window.entries)
    return Decision(None, [Settled(window.number, runs_of(known), ())] if known else [])


def release(
    ledger: Ledger,
    window: Window,
    claims: Sequence[Claim],
    *,
    policy: LeasePolicy,
    now_ms: int,
    delay_ms: int | None = None,
    reason: str = "",
) -> Decision[list[Nacked | GoQueueError]]:
    """Nack: again after `delay_ms` or the backoff, or off to the dead letters after the last retry."""
    replies: list[Nacked | GoQueueError] = []
    items: dict[int, int] = {}
    dead: dict[int, Entry] = {}
    for claim in claims:
        found = _held(window, claim, now_ms)
        if isinstance(found, Entry) and (claim.offset in items or claim.offset in dead):
            found = LeaseExpired(window.group_id, claim.offset)
        if not isinstance(found, Entry):
            replies.append(found)
        elif policy.is_exhausted(found.deliveries):
            dead[claim.offset] = found
            replies.append(Nacked(True, found.deliveries, now_ms))
        else:
            wait_ms = policy.backoff_after(found.deliveries) if delay_ms is None else delay_ms
            items[claim.offset] = now_ms + wait_ms
            replies.append(Nacked(False, found.deliveries, now_ms + wait_ms))
    events: list[Change] = []
    if items:
        events.append(Postponed(window.number, sorted(items.items()), False, reason[:REASON_LENGTH_MAX]))
    if policy.dead_letters is not None:
        events += Moves(ledger, now_ms, _EXHAUSTED).of_dead(window, dead, policy.dead_letters, reason)
    return Decision(replies, events)


def reject(
    ledger: Ledger,
    window: Window,
    claims: Sequence[Claim],
    *,
    policy: LeasePolicy,
    now_ms: int,
    reason: str,
) -> Decision[list[GoQueueError | None]]:
    """No more retries: to the dead letters. Where there are none, it is done with."""
    replies: list[GoQueueError | None] = []
    dead: dict[int, Entry] = {}
    for claim in claims:
        found = _held(window, claim, now_ms)
        if isinstance(found, Entry) and claim.offset in dead:
            found = _settled(window, claim)
        if isinstance(found, Entry):
            dead[claim.offset] = found
            replies.append(None)
        else:
            replies.append(found)
    if policy.dead_letters is None:
        events: list[Change] = [Settled(window.number, runs_of(sorted(dead)), ())] if dead else []
        return Decision(replies, events)
    moves = Moves(ledger, now_ms, _REJECTED)
    return Decision(replies, moves.of_dead(window, dead, policy.dead_letters, reason))


def let_go(ledger: Ledger, window: Window, member: str, *, policy: LeasePolicy, now_ms: int) -> Decision[int]:
    """A member leaves: what it holds may be given to others at once. How many records that is."""
    held = window.held_by(member)
    return Decision(len(held), _given_up(ledger, window, held, ledger.serial + 1, policy, now_ms, _LEFT))


def extend(
    ledger: Ledger,
    window: Window,
    claims: Sequence[Claim],
    *,
    policy: LeasePolicy,
    now_ms: int,
    timeout_ms: int,
    is_added: bool = False,
) -> Decision[list[Extension | GoQueueError]]:
    """The lease ends `timeout_ms` from now, or that much later than it would have. Zero from now gives it up at once."""
    replies: list[Extension | GoQueueError] = []
    by_deadline: dict[int, list[int]] = {}
    given_up: set[int] = set()
    for claim in claims:
        found = _held(window, claim, now_ms)
        if not isinstance(found, Entry):
            replies.append(found)
            continue
        deadline_ms = (found.until_ms if is_added else now_ms) + timeout_ms
        if timeout_ms < 0 or deadline_ms - found.last_ms > VISIBILITY_MS_MAX:
            replies.append(InvalidVisibility(timeout_ms, VISIBILITY_MS_MAX))
            continue
        replies.append(Extension(deadline_ms))
        if deadline_ms <= now_ms:
            given_up.add(claim.offset)
        else:
            by_deadline.setdefault(deadline_ms, []).append(claim.offset)
    events: list[Change] = []
    for index, (deadline_ms, offsets) in enumerate(sorted(by_deadline.items())):
        runs = runs_of(sorted(set(offsets)))
        events.append(Extended(window.number, ledger.serial + 1 + index, deadline_ms, runs))
    serial = ledger.serial + 1 + len(events)
    events += _given_up(ledger, window, sorted(given_up), serial, policy, now_ms, "")
    return Decision(replies, events)


def _given_up(
    ledger: Ledger,
    window: Window,
    offsets: Sequence[int],
    serial: int,
    policy: LeasePolicy,
    now_ms: int,
    reason: str,
) -> list[Change]:
    """Without backoff, but no more often than the policy allows: a delivery is a delivery, whoever ends it. The lease of
    what is dead and cannot be moved now is over, so that ticks try to."""
    items: list[tuple[int, int]] = []
    dead: dict[int, Entry] = {}
    for offset in offsets:
        entry = window.entries[offset]
        if policy.is_exhausted(entry.deliveries):
            dead[offset] = entry
        else:
            items.append((offset, now_ms))
    events: list[Change] = [Postponed(window.number, items, False, reason)] if items else []
    if dead and policy.dead_letters is not None:
        moves, left = Moves(ledger, now_ms, _EXHAUSTED).of_some_dead(
            window, dead, policy.dead_letters, reason
        )
        events += moves
        if left:
            events.append(Extended(window.number, serial, now_ms, runs_of(left)))
    return events


def tick(ledger: Ledger, policy_of: PolicyOf, now_ms: int) -> Decision[None]:
    """What is held too long comes back, or is dead. Some of it: while more is due, the next tick is due as well."""
    events: list[Change] = []
    moves = Moves(ledger, now_ms, _EXHAUSTED)
    due = [
        window
        for _, window in sorted(ledger.windows.items())
        if (at_ms := window.next_deadline_ms()) is not None and at_ms <= now_ms
    ]
    for window in due:
        count_max = max(RECORDS_PER_TICK // len(due), 1)
        events += _ended(window, policy_of(window.group_id), moves, now_ms, count_max)
    return Decision(None, events)


def _ended(window: Window, policy: LeasePolicy, moves: Moves, now_ms: int, count_max: int) -> list[Change]:
    events: list[Change] = []
    items: list[tuple[int, int]] = []
    dead: dict[int, Entry] = {}
    for offset in window.expired(now_ms, count_max):
        entry = window.entries[offset]
        if policy.is_exhausted(entry.deliveries):
            dead[offset] = entry
        else:
            until_ms = max(entry.until_ms + policy.backoff_after(entry.deliveries), now_ms)
            items.append((offset, until_ms))
    if items:
        events.append(Postponed(window.number, items, True, _TIMED_OUT))
    if dead and policy.dead_letters is not None:
        moving, left = moves.of_some_dead(window, dead, policy.dead_letters, _TIMED_OUT)
        events += moving
        window.put_off(left, now_ms)
    return events


# -------------------------------------------------------------------- claims


def _held(window: Window, claim: Claim, now_ms: int) -> Entry | GoQueueError:
    """The record that is claimed, or why the claim is void."""
    entry = window.entries.get(claim.offset)
    if entry is None:
        return _settled(window, claim)
    if claim.deliveries is not None and claim.deliveries != entry.deliveries:
        return LeaseSuperseded(window.group_id, claim.offset, claim.deliveries, entry.deliveries)
    if claim.member is not None and claim.member != entry.member:
        return LeaseSuperseded(window.group_id, claim.offset, None, entry.deliveries)
    if not entry.is_leased or entry.until_ms <= now_ms:
        return LeaseExpired(window.group_id, claim.offset)
    return entry


def _settled(window: Window, claim: Claim) -> GoQueueError:
    if claim.offset < max(window.cursors):
        return MessageSettled(window.group_id, claim.offset)
    return ReceiptNotFound(f"group {window.group_id!r} was never given offset {claim.offset}")
