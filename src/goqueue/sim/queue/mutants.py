"""Deliberate mistakes of the queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from goqueue.core.lanes import Lanes
from goqueue.core.lease import decisions
from goqueue.core.lease.damage import Damage
from goqueue.core.lease.decisions import Claim
from goqueue.core.lease.events import Change, Settled
from goqueue.core.lease.window import Entry, Window
from goqueue.core.schedule.events import Firing
from goqueue.core.schedule.schedule import Schedule
from goqueue.model.errors import GoQueueError
from goqueue.model.record import Producer
from goqueue.node.dead_letters import moves
from goqueue.node.queue.feed import Feed
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.queue.polling import Polling


@contextmanager
def reuse_expired_leases() -> Iterator[None]:
    """A receipt is as good as ever after its lease is over, also when somebody else has the record."""
    held = decisions._held

    def trusting(window: Window, claim: Claim, now_ms: int) -> Entry | GoQueueError:
        entry = window.entries.get(claim.offset)
        return held(window, claim, now_ms) if entry is None or not entry.is_leased else entry

    with patch.object(decisions, "_held", trusting):
        yield


@contextmanager
def keep_acks_in_memory() -> Iterator[None]:
    """An acknowledgement is applied and answered, and not written."""
    carry_out = OwnedLedger.carry_out

    def forgetful(self: OwnedLedger, events: Sequence[Change]) -> None:
        carry_out(self, [event for event in events if not isinstance(event, Settled)])
        for event in events:
            if isinstance(event, Settled):
                self.state.apply(event)

    with patch.object(OwnedLedger, "carry_out", forgetful):
        yield


@contextmanager
def skip_lane_cursors() -> Iterator[None]:
    """The cursor of a lane moves past what was offered, taken or not."""

    def hasty(self: decisions._Picking) -> tuple[int, ...]:
        return tuple(fresh.end for fresh in self._offer)

    with patch.object(decisions._Picking, "cursors", hasty):
        yield


@contextmanager
def give_what_may_vanish() -> Iterator[None]:
    """Records are given before they are durable: a power cut takes them, and others come to their places."""
    with patch.object(Feed, "durable_bound", property(lambda feed: feed.bound)):
        yield


@contextmanager
def move_again_after_a_crash() -> Iterator[None]:
    """Whoever carries out a move does not ask how much of it has arrived."""
    with patch.object(moves, "_stored_count", lambda newest, move: None):
        yield


@contextmanager
def fire_early() -> Iterator[None]:
    """What is due soon is as good as due."""
    ripen, fire, soon_ms = Schedule.ripen, Schedule.fire, 3_000

    def hasty_ripen(self: Schedule, now_ms: int) -> None:
        ripen(self, now_ms + soon_ms)

    def hasty_fire(
        self: Schedule, sizes: Mapping[int, int], *, bytes_max: int, producer: Producer, now_ms: int
    ) -> Firing | None:
        return fire(self, sizes, bytes_max=bytes_max, producer=producer, now_ms=now_ms + soon_ms)

    with patch.object(Schedule, "ripen", hasty_ripen), patch.object(Schedule, "fire", hasty_fire):
        yield


@contextmanager
def forget_busy_keys() -> Iterator[None]:
    """The order of keys holds within one poll only."""
    with patch.object(Window, "is_busy", lambda self, key: False):
        yield


@contextmanager
def keep_credit() -> Iterator[None]:
    """What a member has finished counts as held."""
    count = Window._count

    def stingy(self: Window, member: str, by: int) -> None:
        if by > 0:
            count(self, member, by)

    with patch.object(Window, "_count", stingy):
        yield


@contextmanager
def give_without_limit() -> Iterator[None]:
    """Nobody looks at how much a member holds."""
    with patch.object(Polling, "credit", lambda self, poll: poll.limit):
        yield


@contextmanager
def serve_lanes_strictly() -> Iterator[None]:
    """The first lane that has something is served, the others when it is empty."""

    def greedy(self: Lanes, depths: Sequence[int], limit: int, now_ms: int) -> list[int]:
        taken = []
        for depth in depths:
            taken.append(min(depth, limit))
            limit -= taken[-1]
        return taken

    with patch.object(Lanes, "take", greedy):
        yield


@contextmanager
def lose_what_damage_hit() -> Iterator[None]:
    """Events behind a hole count as if nothing were missing."""
    with patch.object(Damage, "doubts", lambda self: []):
        yield


@contextmanager
def drop_what_follows_damage() -> Iterator[None]:
    """What lies behind a hole counts for nothing."""
    with patch.object(Damage, "adapt", lambda self, event, windows, moves: None):
        yield
