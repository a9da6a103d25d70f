"""A real cluster under load whose nodes are killed and cut off: half a minute of what `make chaos` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.history import Op, Phase
from tests.chaos.load.registry import with_needs
from tests.chaos.run import Plan, opened, run
from tests.chaos.summary import describe

KILLS = ("kill", "kill-leader", "kill-controller")
LINKS = ("isolate", "slow", "kill")
SECONDS = 25.0
PERIOD_S = 8.0
SEED = 5  # faults come in the order in which they are named


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("world", "loads", "faults"),
    [
        ("loopback", ("produce", "read"), LINKS),
        ("local", ("delay", "transact", "queue"), KILLS),
    ],
    ids=["links", "local"],
)
def test_a_cluster_whose_nodes_are_killed_or_cut_off_loses_and_doubles_nothing(
    world: str, loads: tuple[str, ...], faults: tuple[str, ...], tmp_path: Path
) -> None:
    plan = Plan(world, 3, with_needs(loads), faults, seconds=SECONDS, period_s=PERIOD_S, seed=SEED)
    with opened(plan, tmp_path) as cluster:
        outcome = run(plan, cluster, tmp_path)
    text = describe(outcome.history, outcome.found)
    assert outcome.is_right, "\n".join([*outcome.failures, text])
    assert any(one.op is Op.FAULT and one.process == faults[0] for one in outcome.history), text
    assert any(one.op is Op.PUBLISH and one.phase is Phase.OK for one in outcome.history), text
    assert any(one.op is Op.FINAL and one.places for one in outcome.history), text
