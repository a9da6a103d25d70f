"""Who wants to join under the name of a node that is somewhere else: not before that one is dead."""

from __future__ import annotations

from uuid import uuid4

import pytest
from msgspec import structs
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue import __version__
from goqueue.core.cluster.events import NodeRegistered
from goqueue.core.cluster.levels import LEVEL_NEWEST
from goqueue.core.cluster.liveness import Status
from goqueue.core.cluster.nodes import Endpoints
from goqueue.model.cluster_errors import NameTaken
from goqueue.node.cluster.controller import Controller
from goqueue.node.cluster.ports import Join

ELSEWHERE = Endpoints(http="elsewhere:8080", kafka="elsewhere:9092", cluster="elsewhere:7000")
OLDER = "the folder of a node is older than the node"


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


def test_a_node_that_goes_on_when_another_has_its_name_ends() -> None:
    """It would take what the other one leads for its own. It learns of it by the log, or by a snapshot of the catalogue."""

    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=3)
        host = played.cluster.controller()
        assert host is not None
        controller = controller_of(played, host.name)
        silent, other = (name for name in played.cluster.names if name != host.name)
        assert not played.node(silent).failed.is_set()
        played.cluster.hosts[silent].pause()
        await played.until(lambda: controller.status(silent) is Status.DEAD)
        await controller.join(Join(silent, "another", ELSEWHERE, version=__version__, level=LEVEL_NEWEST))
        node = played.node(silent)
        played.cluster.hosts[silent].resume()
        await played.until(node.failed.is_set)
        assert isinstance(node.failure, NameTaken)
        entry = controller_of(played, host.name)._metadata.catalog.node(silent)
        assert entry is not None
        assert entry.incarnation == "another"
        assert node.failure.details == {
            "node": silent,
            "address": "elsewhere:7000",
            "other": f"{silent}:7000",
        }

        metadata = played.node(other)._metadata
        state = metadata.snapshot()
        metadata.catalog.apply(renamed(played, other))
        taken = metadata.snapshot()
        metadata.restore(0, state)
        assert not played.node(other).failed.is_set()
        metadata.restore(0, taken)
        await played.until(played.node(other).failed.is_set)

    in_cluster(play)


def test_only_of_a_folder_that_is_older_than_its_node_is_it_said(caplog: pytest.LogCaptureFixture) -> None:
    """Not of one that asks once more because it has not heard the answer, and not of one that is refused."""

    async def play(played: PlayedCluster) -> None:
        host = played.cluster.controller()
        assert host is not None
        controller = controller_of(played, host.name)
        first = Join("node-9", "first", ELSEWHERE, version=__version__, level=LEVEL_NEWEST, previous=["x"])
        for _ in range(2):
            await controller.join(first)
        after = structs.replace(first, incarnation="after", previous=["first"])
        await controller.join(after)
        with pytest.raises(NameTaken):
            await controller.join(structs.replace(first, is_again=True))
        assert OLDER not in caplog.text
        await controller.join(structs.replace(first, incarnation="older"))
        assert OLDER in caplog.text

    in_cluster(play)


def renamed(played: PlayedCluster, name: str) -> NodeRegistered:
    entry = played.node(name)._metadata.catalog.node(name)
    assert entry is not None
    return NodeRegistered(name, entry.number, "another", ELSEWHERE, entry.rack, entry.version)


def controller_of(played: PlayedCluster, name: str) -> Controller:
    cluster = played.node(name).cluster
    assert cluster is not None
    return cluster.controller
