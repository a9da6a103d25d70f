"""One seed in a process of its own, so that many run side by side. Every seed runs every workload."""

from __future__ import annotations

import gc
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from goqueue.sim.cluster.run import (
    run_cluster_seed,
    run_cuts_seed,
    run_election_seed,
    run_keyed_seed,
    run_queues_seed,
    run_racks_seed,
)
from goqueue.sim.cluster.shortening import run_shortening_seed
from goqueue.sim.kafka.run import run_kafka_seed
from goqueue.sim.mutants import MUTANTS
from goqueue.sim.outcome import Outcome
from goqueue.sim.queue.run import run_queue_seed
from goqueue.sim.quorum.run import run_quorum_seed
from goqueue.sim.single_node import run_seed

WORKLOADS: dict[str, Callable[[int], Outcome]] = {
    "rest": run_seed,
    "kafka": run_kafka_seed,
    "queue": run_queue_seed,
    "cluster": run_cluster_seed,
    "queues": run_queues_seed,
    "elections": run_election_seed,
    "cuts": run_cuts_seed,
    "quorum": run_quorum_seed,
    "keyed": run_keyed_seed,
    "racks": run_racks_seed,
    "shortening": run_shortening_seed,
}


def run_quietly(run: tuple[str, int], mutant: str | None = None) -> Outcome:
    """A workload and its seed. Faults make the broker complain, and it should; only a replay wants to hear it."""
    logging.disable(logging.CRITICAL)
    workload, seed = run
    return run_one(workload, seed, mutant)


def run_one(workload: str, seed: int, mutant: str | None = None) -> Outcome:
    """Whatever goes wrong, the harness itself included, is a violation with a seed."""
    with MUTANTS[mutant].break_it() if mutant else nullcontext(), _uncollected():
        try:
            return WORKLOADS[workload](seed)
        except Exception:  # noqa: BLE001 - the supervisor of a run
            problem = f"the run broke off:\n{traceback.format_exc()}"
            return Outcome(seed, [problem], 0, 0, [], 0.0, workload)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Garbage is collected after the run: it is small, and looking for it in the middle takes a sixth of the time. What was there
    before is none, and is not looked at."""
    was_on = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        if was_on:
            gc.enable()
