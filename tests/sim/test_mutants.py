"""The simulation finds what is broken on purpose."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from goqueue.sim.mutants import MUTANTS
from goqueue.sim.runner import run_quietly

SEED_COUNT = 200
# Too rare for every run; `python -m goqueue.sim --mutant NAME` looks for seeds. What the second breaks has a test of its own:
# test_cluster_rot.py.
RARE = {"forgets-what-was-cancelled", "leads-on-though-damaged"}


@pytest.fixture(autouse=True)
def _logging_back_on() -> Iterator[None]:
    """`run_quietly` turns logging off for its process; that must not outlast these tests."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mutant", sorted(MUTANTS.keys() - RARE))
def test_mutant_is_caught(mutant: str) -> None:
    workload, _, first = MUTANTS[mutant]
    seeds = range(first, first + SEED_COUNT)
    assert any(run_quietly((workload, seed), mutant).violations for seed in seeds)
