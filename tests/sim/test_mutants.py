"""The simulation finds what is broken on purpose."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from goqueue.sim.mutants import MUTANTS
from goqueue.sim.runner import run_quietly

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
only_at_length = pytest.mark.skipif("GOQUEUE_ALL_MUTANTS" not in os.environ, reason="make mutants runs it")


@pytest.fixture(autouse=True)
def _logging_back_on() -> Iterator[None]:
    """`run_quietly` turns logging off for its process; that must not outlast these tests."""
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
    workload, _, first = MUTANTS[mutant]
    seeds = range(first, first + SEED_COUNT)
    assert any(run_quietly((workload, seed), mutant).violations for seed in seeds)
