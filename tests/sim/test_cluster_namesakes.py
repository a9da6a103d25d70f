"""Who wants to join under the name of a node that is somewhere else: not before that one is dead."""

from __future__ import annotations

from uuid import uuid4

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue import __version__
from goqueue.core.cluster.levels import LEVEL_NEWEST
from goqueue.core.cluster.liveness import Status
from goqueue.core.cluster.nodes import Endpoints
from goqueue.model.cluster_errors import NameTaken
from goqueue.node.cluster.controller import Controller
from goqueue.node.cluster.ports import Join

ELSEWHERE = Endpoints(http="elsewhere:8080", kafka="elsewhere:9092", cluster="elsewhere:7000")


def test_a_node_that_stands_still_keeps_its_name_until_it_is_dead() -> None:
    """It may go on any moment, and what it has on its disk must not be counted as lost with another one's empty disk."""

    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=3)
        host = played.cluster.controller()
        assert host is not None
        controller = controller_of(played, host.name)
        silent = next(name for name in played.cluster.names if name != host.name)
        join = Join(
            silent,
            str(uuid4()),
            ELSEWHERE,
            rack="",
            version=__version__,
            level=LEVEL_NEWEST,
            lost=[],
        )
        with pytest.raises(NameTaken):
            await controller.join(join)
        played.cluster.hosts[silent].pause()
        await played.until(lambda: controller.status(silent) is Status.SUSPECT)
        with pytest.raises(NameTaken):
            await controller.join(join)
        await played.until(lambda: controller.status(silent) is Status.DEAD)
        await controller.join(join)

    in_cluster(play)


def controller_of(played: PlayedCluster, name: str) -> Controller:
    cluster = played.node(name).cluster
    assert cluster is not None
    return cluster.controller
