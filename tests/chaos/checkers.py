"""Every anomaly that is looked for, and what was found of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from tests.chaos.end_checkers import DidNotFinish, Undrained
from tests.chaos.facts import Facts
from tests.chaos.group_checkers import CommitAhead, LostCommit, TwoOwners, Unprocessed
from tests.chaos.history import History
from tests.chaos.log_checkers import (
    Duplicate,
    InconsistentOffsets,
    LostWrite,
    NonmonotonicPoll,
    NonmonotonicSend,
    Phantom,
    PollSkip,
    Unseen,
)
from tests.chaos.queue_checkers import (
    AckedAgain,
    BeforeDue,
    DeadDoubled,
    DelayDoubled,
    DelayLost,
    QueueLost,
    TwoHolders,
)
from tests.chaos.transaction_checkers import AbortedRead, OpenTransaction, TornTransaction

EVIDENCE_COUNT_MAX: Final = 20


class Checker(Protocol):
    name: str

    def check(self, facts: Facts) -> Iterator[str]:
        """A sentence for each occurrence."""


@dataclass(frozen=True, slots=True)
class Found:
    count: int
    evidence: tuple[str, ...]  # the first of them


CHECKERS: Final[tuple[Checker, ...]] = (
    LostWrite(),
    Unseen(),
    Duplicate(),
    InconsistentOffsets(),
    NonmonotonicSend(),
    NonmonotonicPoll(),
    PollSkip(),
    Phantom(),
    AbortedRead(),
    TornTransaction(),
    OpenTransaction(),
    LostCommit(),
    CommitAhead(),
    Unprocessed(),
    TwoOwners(),
    AckedAgain(),
    TwoHolders(),
    QueueLost(),
    DeadDoubled(),
    BeforeDue(),
    DelayLost(),
    DelayDoubled(),
    DidNotFinish(),
    Undrained(),
)


def check(history: History) -> Mapping[str, Found]:
    """By the name of the anomaly; all of them, also those that were not found."""
    facts = Facts(history)
    found: dict[str, Found] = {}
    for checker in CHECKERS:
        sentences = checker.check(facts)
        evidence = tuple(islice(sentences, EVIDENCE_COUNT_MAX))
        found[checker.name] = Found(len(evidence) + sum(1 for _ in sentences), evidence)
    return found
