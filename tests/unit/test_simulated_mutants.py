"""The page about tests tells where each of the classic mistakes of a cluster is found; it must be what the simulation uses."""

from __future__ import annotations

import re
from pathlib import Path

from goqueue.sim.mutants import MUTANTS
from goqueue.sim.runner import WORKLOADS

PAGE = Path(__file__).parents[2] / "docs/testing.md"
ROW = re.compile(r"^\| [^|]+ \| `([a-z-]+)` \| `([a-z]+)` \| (\d+) \| [^|]+ \|$", re.MULTILINE)
CLASSIC_COUNT = 12


def test_the_page_has_the_workload_and_the_seed_of_every_classic_mistake() -> None:
    rows = {name: (workload, int(seed)) for name, workload, seed in ROW.findall(PAGE.read_text())}
    assert len(rows) >= CLASSIC_COUNT
    assert rows == {name: (MUTANTS[name].workload, MUTANTS[name].first_seed) for name in rows}


def test_every_mutant_has_a_workload() -> None:
    assert {mutant.workload for mutant in MUTANTS.values()} <= set(WORKLOADS)
