"""Deliberate mistakes of the queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from goqueue.core.lease import decisions
from goqueue.core.lease.decisions import Claim
from goqueue.core.lease.events import Change, Settled
from goqueue.core.lease.window import Entry, Window
from goqueue.model.errors import GoQueueError
from goqueue.node.queue.feed import Feed
from goqueue.node.queue.ledger import OwnedLedger


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

    async def hasty(self: Feed, end: int) -> None:
        pass

    with patch.object(Feed, "_until_durable", hasty):
        yield
