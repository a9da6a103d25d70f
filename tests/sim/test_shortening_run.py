"""Topics that get shorter while things fail: clean on a few seeds, the same run for the same seed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from goqueue.sim.runner import run_quietly

SEEDS = range(6)


@pytest.fixture(autouse=True)
def _logging_back_on() -> Iterator[None]:
    """`run_quietly` turns logging off for its process; that must not outlast these tests."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_gone_may_be_and_the_rest_is_there(seed: int) -> None:
    outcome = run_quietly(("shortening", seed))
    assert outcome.violations == [], f"replay: python -m goqueue.sim --workload shortening --seed {seed}"


def test_same_seed_gives_the_same_run() -> None:
    assert run_quietly(("shortening", 0)) == run_quietly(("shortening", 0))
