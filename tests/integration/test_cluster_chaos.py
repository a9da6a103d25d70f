"""A real cluster under load whose nodes are killed and cut off: half a minute of what `make chaos` does at length."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.faults import possible
from tests.chaos.history import Op, Phase
from tests.chaos.load.registry import with_needs
from tests.chaos.namespaces import why_not
from tests.chaos.run import Plan, opened, run
from tests.chaos.summary import describe

KILLS = ("kill", "kill-leader", "kill-controller")
LINKS = ("isolate", "slow", "kill")
ONE_SIDED = ("one-way", "pause", "bridge")
NAMESPACES = ("full-disk", "halves")
PERIOD_S = 8.0
SEED = 5  # faults come in the order in which they are named


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("world", "loads", "faults"),
    [
        ("loopback", ("produce", "read"), LINKS),
        ("loopback", ("produce", "read", "group-consumer"), ONE_SIDED),
        ("local", ("delay", "transact", "queue"), KILLS),
        ("namespaces", ("produce", "read"), NAMESPACES),
    ],
    ids=["links", "one-sided", "local", "namespaces"],
)
def test_a_cluster_whose_nodes_are_killed_or_cut_off_loses_and_doubles_nothing(
    world: str, loads: tuple[str, ...], faults: tuple[str, ...], tmp_path: Path
) -> None:
    refusal = why_not() if world == "namespaces" else None
    if refusal is not None:
        pytest.skip(f"there can be no network namespaces: {refusal}")
    seconds = PERIOD_S * len(faults) + 1.0  # each kind can come once
    plan = Plan(world, 3, with_needs(loads), faults, seconds=seconds, period_s=PERIOD_S, seed=SEED)
    with opened(plan, tmp_path) as cluster:
        _, refused = possible(faults, cluster)
        if refused:
            pytest.skip(f"this machine cannot do it: {refused}")
        outcome = run(plan, cluster, tmp_path)
    text = describe(outcome.history, outcome.found)
    assert outcome.is_right, "\n".join([*outcome.failures, text])
    assert any(one.op is Op.FAULT and one.process == faults[0] for one in outcome.history), text
    assert any(one.op is Op.PUBLISH and one.phase is Phase.OK for one in outcome.history), text
    assert any(one.op is Op.FINAL and one.places for one in outcome.history), text
