"""The simulation finds what is broken on purpose."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any  # of tasks: whatever they give
from unittest.mock import patch

import pytest

from goqueue.sim.loop import SimLoop
from goqueue.sim.mutants import MUTANTS
from goqueue.sim.runner import run_one, run_quietly

SEED_COUNT = 200
# Too rare for every run; `python -m goqueue.sim --mutant NAME` looks for seeds. What the second breaks has a test of its own:
# test_cluster_rot.py.
RARE = {"forgets-what-was-cancelled", "leads-on-though-damaged"}
# Four to eleven seconds each, more than half of what all mutants take together; `make mutants` makes these, too.
DEAR = {
    "credit-not-freed",
    "drops-acks-of-the-predecessor",
    "drain-below-min-in-sync",
    "ignores-gates",
    "keeps-lease-in-memory-only",
    "lets-everybody-straight-in",
    "moves-dead-letters-again",
    "plan-dies-with-its-controller",
    "reports-unsynced",
    "sends-on-as-the-producer",
    "settles-alone",
}
# What a call of something that has changed since fails with.
SLIPS = ("TypeError", "AttributeError", "NameError")
CLASSIC_SEEDS = sorted({(one.workload, one.first_seed) for one in MUTANTS.values() if one.found_by})
only_at_length = pytest.mark.skipif("GOQUEUE_ALL_MUTANTS" not in os.environ, reason="make mutants runs it")


@pytest.fixture(autouse=True)
def _logging_back_on() -> Iterator[None]:
    """Runs turn logging off for their process; that must not outlast these tests."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, marks=[only_at_length] if mutant in DEAR else [])
        for mutant in sorted(MUTANTS.keys() - RARE)
    ],
)
def test_mutant_is_caught(mutant: str) -> None:
    """For what it does wrong, and not because it does not fit what it replaces any more."""
    _, _, first, found_by = MUTANTS[mutant]
    seeds = range(first, first + (1 if found_by else SEED_COUNT))
    findings: list[str] = next(filter(None, (_look(mutant, seed) for seed in seeds)), [])
    assert any(found_by in finding for finding in findings), findings[:10]


@pytest.mark.parametrize(("workload", "seed"), CLASSIC_SEEDS)
def test_seed_that_finds_a_classic_mistake_is_clean_without_it(workload: str, seed: int) -> None:
    assert run_quietly((workload, seed)).violations == []


def _look(mutant: str, seed: int) -> list[str]:
    """The violations, if there are any, and the errors of that run."""
    with _noted_errors() as errors:
        violations = run_one(MUTANTS[mutant].workload, seed, mutant).violations
    slips = [error for error in errors if error.startswith(SLIPS)]
    slips += [one for one in violations if "broke off" in one and "InvariantViolation" not in one]
    assert slips == [], f"the mutant itself fails with seed {seed}"
    return [*violations, *errors] if violations else []


@contextmanager
def _noted_errors() -> Iterator[list[str]]:
    """What tasks ended with, and what requests and nodes failed with: much of it ends in a log, or with a client that waits."""
    errors: dict[str, None] = {}
    finish = SimLoop._finish

    def note(error: BaseException | None) -> None:
        if error is not None:
            errors[f"{type(error).__name__}: {error}"] = None

    def note_and_finish(self: SimLoop, task: asyncio.Task[Any]) -> None:
        note(task._exception)  # `exception()` would count as somebody who cares
        finish(self, task)

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                note(record.exc_info[1])

    notes, found = Notes(), list[str]()
    logging.disable(logging.WARNING)
    logging.getLogger().addHandler(notes)
    try:
        with patch.object(SimLoop, "_finish", note_and_finish):
            yield found
    finally:
        logging.getLogger().removeHandler(notes)
        found += errors
