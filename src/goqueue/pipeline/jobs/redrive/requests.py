"""Asking the broker to send letters back, step by step, within a limit and at a rate.

The broker decides and remembers: what it has sent back once it never sends back again, whoever asks. So a job that was stopped is
simply run again, a request whose answer was lost is simply made again, and there is no state to keep here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from msgspec import Struct

from goqueue.client.connection import segment
from goqueue.pipeline.jobs.redrive.plan import Run, Step
from goqueue.pipeline.jobs.rest import BrokerRest, Refused

_CONNECTIONS_MAX: Final = 16
_NOTES_MAX: Final = 10
_NOT_FOUND: Final = 404


class Answer(Struct, frozen=True):
    """As POST /topics/{topic}/redrive answers."""

    moved: int
    pending: int
    failed: int
    parked: int
    errors: list[str] = []

    @property
    def settled(self) -> int:
        return self.moved + self.pending + self.failed + self.parked


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every letter."""

    topic: str
    to: str | None = None
    redrives_max: int = 5
    force: bool = False
    dry_run: bool = False


@dataclass(slots=True)
class Outcome:
    moved: int = 0
    pending: int = 0
    failed: int = 0
    parked: int = 0
    gone: int = 0  # were sent back before, or retention took them
    left: int = 0  # not asked for, since the limit was reached
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, answer: Answer) -> None:
        self.moved += answer.moved
        self.pending += answer.pending
        self.failed += answer.failed
        self.parked += answer.parked
        for note in answer.errors:
            if len(self.notes) < _NOTES_MAX:
                self.notes[note] = None

    def join(self, other: Outcome) -> None:
        self.add(Answer(other.moved, other.pending, other.failed, other.parked, list(other.notes)))
        self.gone += other.gone
        self.left += other.left


class Allowance:
    """How many may still go, and when. Shared by the threads."""

    def __init__(
        self,
        limit: int | None,
        rate: int | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._left = limit
        self.rate = rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._due = clock()

    def take(self, wanted: int) -> int:
        """So many may go now; 0 when the limit is reached. Waits until those before have had their time."""
        with self._lock:
            granted = wanted if self._left is None else min(wanted, self._left)
            if self._left is not None:
                self._left -= granted
            now = self._clock()
            turn = max(self._due, now)
            if self.rate is not None:
                self._due = turn + granted / self.rate
        if granted and turn > now:
            self._sleep(turn - now)
        return granted

    def give_back(self, count: int) -> None:
        """What was granted and did not go."""
        with self._lock:
            if self._left is not None:
                self._left += count


def carry_out(url: str, steps: Sequence[Step], terms: Terms, allowance: Allowance) -> Outcome:
    """Partitions side by side; the letters of each in the order of their offsets."""
    by_partition = [
        list(one) for _, one in groupby(sorted(steps, key=_order), key=lambda step: step.partition)
    ]
    whole = Outcome()
    if not by_partition:
        return whole
    with ThreadPoolExecutor(min(_CONNECTIONS_MAX, len(by_partition))) as pool:
        for outcome in pool.map(lambda own: _carry_out(url, own, terms, allowance), by_partition):
            whole.join(outcome)
    return whole


def _carry_out(url: str, steps: Iterable[Step], terms: Terms, allowance: Allowance) -> Outcome:
    outcome = Outcome()
    with BrokerRest(url) as broker:
        for step in steps:
            _carry_out_step(broker, step, terms, allowance, outcome)
    return outcome


def _carry_out_step(
    broker: BrokerRest, step: Step, terms: Terms, allowance: Allowance, outcome: Outcome
) -> None:
    granted = allowance.take(step.letters)
    if not granted:
        outcome.left += step.letters
        return
    answer = _ask(broker, step, granted, terms, allowance.rate)
    outcome.add(answer)
    went = answer.moved + answer.pending
    allowance.give_back(granted - went)
    rest = max(0, step.letters - answer.settled)
    if went == granted < step.letters:
        outcome.left += rest
    else:
        outcome.gone += rest


def _ask(broker: BrokerRest, step: Step, limit: int, terms: Terms, rate: int | None) -> Answer:
    body: dict[str, object] = {
        "partition": step.partition,
        "limit": limit,
        "max_redrives": terms.redrives_max,
        "force": terms.force,
        "dry_run": terms.dry_run,
    }
    if terms.to is not None:
        body["to"] = terms.to
    if rate is not None:
        body["per_second"] = rate
    if isinstance(step, Run):
        body["filter"] = {"from_time": str(step.start_ms), "to_time": str(step.end_ms)}
    else:
        body["offset"] = step.first_offset
    wait_s = 0.0 if rate is None else limit / rate
    try:
        return broker.ask("POST", f"/topics/{segment(terms.topic)}/redrive", Answer, body=body, wait_s=wait_s)
    except Refused as error:
        if error.status != _NOT_FOUND:
            raise
        return Answer(0, 0, limit, 0, [str(error)])


def _order(step: Step) -> tuple[int, int]:
    return step.partition, step.first_offset
