"""A controller that stood still for a moment: what others said meanwhile is still to be heard, so nobody's silence counts."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

# dead_ms is 1.2 s here, and so is the shortest time after which voters look for another controller. What was heard last is up to
# 0.3 s old when the stall begins: some of these are too long for the one, and some for the other.
STALLS_S = (0.95, 1.0, 1.05, 1.1, 1.15) * 3
BETWEEN_S = 0.7
TRIED_MIN = 5


def test_a_controller_that_stood_still_fences_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def play(played: PlayedCluster) -> int:
        await played.create(num_partitions=6)
        return sum([await stalled(played, caplog, stall_s) for stall_s in STALLS_S])

    assert in_cluster(play) >= TRIED_MIN


async def stalled(played: PlayedCluster, caplog: pytest.LogCaptureFixture, stall_s: float) -> bool:
    """Whether it was still the controller; then it must have fenced nobody."""
    await played.until(lambda: not played.cluster.unsettled())
    controller = played.cluster.controller()
    assert controller is not None
    term = played.node(controller.name)._quorum.raft.term
    caplog.clear()
    controller.pause()
    await asyncio.sleep(stall_s)
    controller.resume()
    await asyncio.sleep(BETWEEN_S)
    if any(played.node(name)._quorum.raft.term != term for name in played.cluster.names):
        return False
    assert "node is fenced" not in caplog.text
    return True
