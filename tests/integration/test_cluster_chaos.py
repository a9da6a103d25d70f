"""A real cluster under load whose nodes are killed: half a minute of what `make chaos` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.history import Op, Phase
from tests.chaos.namespaces import why_not
from tests.chaos.run import Plan, opened, run
from tests.chaos.summary import describe

FAULTS = ("kill", "kill-leader", "kill-controller")
SECONDS = 25.0


@pytest.mark.slow
def test_a_cluster_whose_nodes_are_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    world = "loopback" if why_not() else "namespaces"
    plan = Plan(world, 3, ["produce", "read"], FAULTS, seconds=SECONDS, period_s=8.0, seed=1)
    with opened(plan, tmp_path) as cluster:
        outcome = run(plan, cluster, tmp_path)
    text = describe(outcome.history, outcome.found)
    assert outcome.is_right, text
    assert any(one.op is Op.FAULT for one in outcome.history), text
    assert any(one.op is Op.PUBLISH and one.phase is Phase.OK for one in outcome.history), text
    assert any(one.op is Op.FINAL and one.places for one in outcome.history), text
