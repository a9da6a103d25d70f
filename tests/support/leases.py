"""A ledger as the node runs it, without the node: decide, write, apply. And a partition for it to be of."""

from __future__ import annotations

from typing import TypeVar

from msgspec import structs

from goqueue.core.lease.decisions import Claim, Decision, Fresh, Given, Offer, lease, open_group
from goqueue.core.lease.events import Change, Event, Target, decode, encode
from goqueue.core.lease.ledger import Ledger
from goqueue.core.lease.policy import LeasePolicy
from goqueue.core.lease.window import NO_KEY, UNKNOWN_KEY, Window
from goqueue.model.priority import LANE_COUNT, NORMAL

R = TypeVar("R")
DEAD_LETTERS = Target("orders.dlq", 0)
POLICY = LeasePolicy(dead_letters=DEAD_LETTERS)
VISIBILITY_MS = 30_000


class Bench:
    """`records` are lane and key of each offset of the partition, `log` every event as it was written."""

    def __init__(self, policy: LeasePolicy = POLICY) -> None:
        self.policy = policy
        self.ledger = Ledger()
        self.records: list[tuple[int, int]] = []
        self.log_start = 0
        self.log: list[bytes] = []
        self.now_ms = 1_000_000

    def publish(self, count: int = 1, *, lane: int = NORMAL, key: int = NO_KEY) -> None:
        self.records += [(lane, key)] * count

    def open(self, group_id: str = "g", start: int = 0) -> Window:
        self.write(open_group(self.ledger, group_id, start))
        return self.window(group_id)

    def window(self, group_id: str = "g") -> Window:
        found = self.ledger.find(group_id)
        assert found is not None
        return found

    def write(self, decision: Decision[R]) -> R:
        for event in decision.events:
            self.append(event)
        return decision.reply

    def append(self, event: Change) -> None:
        data = encode(event)
        self.log.append(data)
        self.ledger.apply(decode(data))

    def lease(
        self, limit: int = 10, *, member: str = "m", group_id: str = "g", visibility_ms: int = VISIBILITY_MS
    ) -> list[Given]:
        return self.write(self.leasing(limit, member=member, group_id=group_id, visibility_ms=visibility_ms))

    def leasing(
        self, limit: int = 10, *, member: str = "m", group_id: str = "g", visibility_ms: int = VISIBILITY_MS
    ) -> Decision[list[Given]]:
        window = self.window(group_id)
        return lease(
            self.ledger,
            window,
            member,
            self.offer(window, limit),
            limit=limit,
            visibility_ms=visibility_ms,
            now_ms=self.now_ms,
            policy=self.policy,
        )

    def offer(self, window: Window, count: int) -> Offer:
        """As the feed makes it: what comes next in each lane, and where that ends."""
        lanes = []
        for lane in range(LANE_COUNT):
            start = max(window.cursors[lane], self.log_start)
            offsets = [at for at in range(start, len(self.records)) if self.records[at][0] == lane]
            end = offsets[count] if len(offsets) > count else len(self.records)
            keys = [self.records[at][1] for at in offsets[:count]] if self.policy.keeps_key_order else []
            lanes.append(Fresh(offsets[:count], max(end, start), keys))
        return tuple(lanes)

    def expected_cursors(self, window: Window) -> tuple[int, ...]:
        """Where the feed has looked in vain, as an ack says it."""
        return tuple(one.offsets[0] if one.offsets else one.end for one in self.offer(window, 1))


def claims(given: list[Given]) -> list[Claim]:
    return [Claim(one.offset, one.deliveries) for one in given]


def copy_of(ledger: Ledger) -> Ledger:
    """Through its snapshot."""
    copy = Ledger()
    for part in ledger.snapshot():
        copy.apply(through_the_log(part))
    return copy


def through_the_log(event: Event) -> Event:
    return decode(encode(event))


def facts(ledger: Ledger, now_ms: int) -> dict[str, object]:
    """Everything that the log must give back."""
    return {
        "serial": ledger.serial,
        "group number": ledger.group_number,
        "producer": ledger.producer,
        "sequences": ledger.sequences,
        "moves": ledger.moves,
        "numbers": ledger.numbers,
        "windows": {number: _window_facts(window, now_ms) for number, window in ledger.windows.items()},
    }


def _window_facts(window: Window, now_ms: int) -> dict[str, object]:
    return {
        "group": window.group_id,
        "incarnation": window.incarnation,
        "cursors": window.cursors,
        "committed": window.committed_offset,
        "in flight": window.in_flight,
        "in flight count": window.in_flight_count,
        "settled": window.settled_count,
        "moved": window.moved_count,
        "entries": {offset: structs.astuple(entry) for offset, entry in window.entries.items()},
        "ready": [window.ready(lane, now_ms, 1_000) for lane in range(LANE_COUNT)],
        "expired": window.expired(now_ms, 1_000),
    }


def check_counts(window: Window) -> None:
    """What is kept beside the entries, so that nobody has to go over all of them, says the same as they do."""
    left: dict[int, list[int]] = {}
    held: dict[str, list[int]] = {}
    for offset, entry in sorted(window.entries.items()):
        if entry.is_leased:
            left.setdefault(entry.serial, []).append(offset)
            held.setdefault(entry.member, []).append(offset)
    leases = window._leases
    assert {serial: lease.left_count for serial, lease in leases._leases.items()} == {
        serial: len(offsets) for serial, offsets in left.items()
    }
    assert {serial: sorted(window._left_of(serial)) for serial in leases._leases} == left
    assert len(leases._deadlines) == len(left)
    assert set(held) <= set(leases._serials)
    for member in leases._serials:
        assert window.held_by(member) == held.get(member, [])
    assert set(window._lowest) >= set(window.entries)
    assert window.unknown_key_count == sum(entry.key == UNKNOWN_KEY for entry in window.entries.values())
