"""A real cluster under load whose nodes are killed: half a minute of what `make chaos` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.history import Op, Phase
from tests.chaos.load.registry import with_needs
from tests.chaos.namespaces import why_not
from tests.chaos.run import Plan, opened, run
from tests.chaos.summary import describe

FAULTS = ("kill", "kill-leader", "kill-controller")
SECONDS = 25.0
PERIOD_S = 8.0
OWN = "networks of their own where they are allowed"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("world", "loads"),
    [(OWN, ("produce", "read")), ("local", ("delay", "transact", "queue"))],
    ids=["own", "local"],
)
def test_a_cluster_whose_nodes_are_killed_loses_and_doubles_nothing(
    world: str, loads: tuple[str, ...], tmp_path: Path
) -> None:
    if world == OWN:
        world = "loopback" if why_not() else "namespaces"
    plan = Plan(world, 3, with_needs(loads), FAULTS, seconds=SECONDS, period_s=PERIOD_S, seed=1)
    with opened(plan, tmp_path) as cluster:
        outcome = run(plan, cluster, tmp_path)
    text = describe(outcome.history, outcome.found)
    assert outcome.is_right, "\n".join([*outcome.failures, text])
    assert any(one.op is Op.FAULT for one in outcome.history), text
    assert any(one.op is Op.PUBLISH and one.phase is Phase.OK for one in outcome.history), text
    assert any(one.op is Op.FINAL and one.places for one in outcome.history), text
