"""The simulated cluster: clean on many seeds, the same run for the same seed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from goqueue.sim.runner import run_quietly

SEED_COUNT = 10  # `make sim SEEDS=1000` runs more


@pytest.fixture(autouse=True)
def _logging_back_on() -> Iterator[None]:
    """`run_quietly` turns logging off for its process; that must not outlast these tests."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, SEED_COUNT, 5))
def test_no_invariant_is_broken_whatever_fails(first: int) -> None:
    for seed in range(first, first + 5):
        outcome = run_quietly(("cluster", seed))
        assert outcome.violations == [], f"replay: python -m goqueue.sim --workload cluster --seed {seed}"


def test_readers_at_followers_see_what_others_see() -> None:
    for seed in range(3):
        outcome = run_quietly(("racks", seed))
        assert outcome.violations == [], f"replay: python -m goqueue.sim --workload racks --seed {seed}"


def test_queues_and_delays_move_with_their_partitions() -> None:
    for seed in range(4):
        outcome = run_quietly(("queues", seed))
        assert outcome.violations == [], f"replay: python -m goqueue.sim --workload queues --seed {seed}"


def test_keys_keep_their_order_while_partitions_come_and_go() -> None:
    for seed in range(3):
        outcome = run_quietly(("keyed", seed))
        assert outcome.violations == [], f"replay: python -m goqueue.sim --workload keyed --seed {seed}"


def test_same_seed_gives_the_same_run() -> None:
    assert run_quietly(("cluster", 4)) == run_quietly(("cluster", 4))


def test_elections_over_slow_links_are_clean() -> None:
    for seed in range(4):
        outcome = run_quietly(("elections", seed))
        assert outcome.violations == [], f"replay: python -m goqueue.sim --workload elections --seed {seed}"


def test_networks_that_are_cut_in_any_shape_heal() -> None:
    for seed in range(4):
        outcome = run_quietly(("cuts", seed))
        assert outcome.violations == [], f"replay: python -m goqueue.sim --workload cuts --seed {seed}"
