"""Redrive: which dead letters go back, and that each goes once.

What was sent back from a partition is a set of offsets in its ledger, so a redrive goes on where the one before it
stopped, whatever either was looking for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from goqueue.core.dead_letter import Origin
from goqueue.core.lease.decisions import Decision
from goqueue.core.lease.events import REDRIVE, REDRIVEN, Change, Target, Trimmed
from goqueue.core.lease.ledger import Ledger
from goqueue.core.lease.moves import Moves
from goqueue.model.errors import LimitExceeded
from goqueue.model.record import StoredRecord

RUN_COUNT_MAX: Final = 100_000  # of what was redriven from one partition; holes between them cost memory


class RedriveFilter(Struct, frozen=True):
    """What must be true of a dead letter; what is None does not matter. Ranges are half-open."""

    reason: str | None = None  # rejected, or retries exhausted
    group: str | None = None
    error_contains: str | None = None
    key: bytes | None = None
    headers: Mapping[str, bytes] = {}  # each must be there with this value
    partition: int | None = None  # in which it was
    offset_start: int | None = None  # where it was
    offset_end: int | None = None
    time_start_ms: int | None = None  # when it died
    time_end_ms: int | None = None

    def matches(self, record: StoredRecord, origin: Origin) -> bool:
        return (
            self.reason in (None, origin.reason)
            and self.group in (None, origin.group)
            and (self.error_contains is None or self.error_contains in origin.error)
            and self.key in (None, record.key)
            and self.partition in (None, origin.partition)
            and _is_within(origin.offset, self.offset_start, self.offset_end)
            and _is_within(record.timestamp_ms, self.time_start_ms, self.time_end_ms)
            and all((name, value) in record.headers for name, value in self.headers.items())
        )


def redrive(ledger: Ledger, wanted: Mapping[Target, Sequence[int]], now_ms: int) -> Decision[int]:
    """How many go: those that have not gone before."""
    moves = Moves(ledger, now_ms, REDRIVEN)
    events: list[Change] = []
    count = 0
    for target, offsets in wanted.items():
        new = [offset for offset in offsets if offset not in ledger.redriven]
        count += len(new)
        events += moves.of_redrive(new, target)
    if count and ledger.redriven.run_count + count > RUN_COUNT_MAX:
        raise LimitExceeded(
            f"what was redriven from this partition lies in {ledger.redriven.run_count} pieces; at most "
            f"{RUN_COUNT_MAX} are kept; redrive what lies between them, or delete it",
            count_max=RUN_COUNT_MAX,
        )
    return Decision(count, events)


def trim_redriven(ledger: Ledger, log_start: int) -> Decision[None]:
    """Retention has taken dead letters; nobody asks any more what became of them."""
    runs = ledger.redriven.runs()
    return Decision(None, [Trimmed(REDRIVE, log_start)] if runs and runs[0].start < log_start else [])


def _is_within(number: int, start: int | None, end: int | None) -> bool:
    return (start is None or start <= number) and (end is None or number < end)
