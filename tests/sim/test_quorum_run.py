"""The quorum alone: clean on many seeds, the same run for the same seed."""

from __future__ import annotations

from goqueue.sim.quorum.run import run_quorum_seed

SEED_COUNT = 20  # a tenth of a second each; `make sim` runs more


def test_no_election_and_no_fall_of_a_leader_breaks_an_invariant() -> None:
    for seed in range(SEED_COUNT):
        outcome = run_quorum_seed(seed)
        assert outcome.violations == [], f"replay: python -m goqueue.sim --workload quorum --seed {seed}"
        assert outcome.acked_count, "something was decided"


def test_same_seed_gives_the_same_run() -> None:
    assert run_quorum_seed(4) == run_quorum_seed(4)
