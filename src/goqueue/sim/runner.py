"""One seed in a process of its own, so that many run side by side."""

from __future__ import annotations

import logging
import traceback
from contextlib import nullcontext

from goqueue.sim.mutants import MUTANTS
from goqueue.sim.single_node import Outcome, run_seed


def run_quietly(seed: int, mutant: str | None = None) -> Outcome:
    """Faults make the broker complain, and it should; only a replay wants to hear it."""
    logging.disable(logging.CRITICAL)
    return run_one(seed, mutant)


def run_one(seed: int, mutant: str | None = None) -> Outcome:
    """Whatever goes wrong, the harness itself included, is a violation with a seed."""
    with MUTANTS[mutant]() if mutant else nullcontext():
        try:
            return run_seed(seed)
        except Exception:  # noqa: BLE001 - the supervisor of a run
            return Outcome(seed, [f"the run broke off:\n{traceback.format_exc()}"], 0, 0, [], 0.0)
