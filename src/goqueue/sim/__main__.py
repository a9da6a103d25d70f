"""`python -m goqueue.sim`: many seeds, or one again. A failing seed prints the command that replays it."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
from functools import partial

from goqueue.sim.mutants import MUTANTS
from goqueue.sim.outcome import Outcome
from goqueue.sim.runner import WORKLOADS, run_one, run_quietly


def main() -> int:
    options = _parse()
    logging.basicConfig(level=logging.INFO)
    started = time.monotonic()
    workloads = [options.workload] if options.workload else _workloads_of(options.mutant)
    if options.seed is not None:
        outcomes = [run_one(workload, options.seed, options.mutant) for workload in workloads]
    else:
        seeds = range(options.first, options.first + options.seeds)
        runs = [(workload, seed) for seed in seeds for workload in workloads]
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            outcomes = []
            for outcome in pool.imap_unordered(
                partial(run_quietly, mutant=options.mutant), runs, chunksize=4
            ):
                outcomes.append(outcome)
                if outcome.violations:
                    _print_failure(outcome, options.mutant)
                    if options.mutant:
                        break
    failed = [outcome for outcome in outcomes if outcome.violations]
    if options.seed is not None:
        for outcome in failed:
            _print_failure(outcome, options.mutant)
    print(
        f"{len(outcomes)} runs, {len(failed)} failed; {sum(len(one.lives) for one in outcomes)} lives, "
        f"{sum(one.acked_count for one in outcomes)} messages acknowledged, "
        f"{sum(one.read_count for one in outcomes)} read, "
        f"{sum(one.virtual_s for one in outcomes):,.0f} virtual seconds in {time.monotonic() - started:.0f} s"
    )
    return 1 if failed else 0


def _workloads_of(mutant: str | None) -> list[str]:
    """A mutant runs where it must be caught, everything else everywhere."""
    return [MUTANTS[mutant].workload] if mutant else list(WORKLOADS)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m goqueue.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one, with the broker's log")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), help="this one only; without it, every one")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument(
        "--mutant", choices=sorted(MUTANTS), help="break the broker on purpose; must be caught"
    )
    return parser.parse_args()


def _print_failure(outcome: Outcome, mutant: str | None) -> None:
    again = f" --mutant {mutant}" if mutant else ""
    print(f"seed {outcome.seed} ({outcome.workload}) failed after lives {', '.join(outcome.lives)}:")
    for violation in outcome.violations[:10]:
        print(f"  {violation}")
    print(
        f"  replay: python -m goqueue.sim --workload {outcome.workload} --seed {outcome.seed}{again}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
