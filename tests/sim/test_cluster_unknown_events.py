"""Nodes of several feature levels in a simulated cluster, and what is in the log although a node does not know it."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.cluster.levels import LEVEL_NEWEST

NEWER = b'[{"event":"TopicCreated","name":"t","id":9,"partition_count":1,"overrides":{},"created_ms":1,"colour":"red"}]'


def test_a_new_cluster_comes_to_the_newest_level_and_writes_down_its_voters() -> None:
    async def play(played: PlayedCluster) -> None:
        nodes = [played.node(name) for name in played.cluster.names]
        await played.until(lambda: all(node._metadata.catalog.level == LEVEL_NEWEST for node in nodes))
        await played.until(lambda: all(node._quorum.raft.are_voters_written for node in nodes))

    in_cluster(play)


def test_a_node_that_finds_what_it_does_not_know_stops_and_applies_nothing_after_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def play(played: PlayedCluster) -> None:
        controller = played.cluster.controller()
        assert controller is not None
        leading = played.node(controller.name)
        nodes = [played.node(name) for name in played.cluster.names]
        before = leading._quorum.applied_index
        asked = asyncio.ensure_future(leading._quorum.propose(NEWER))
        await played.until(lambda: sum(node.failed.is_set() for node in nodes) >= 2)
        asked.cancel()
        assert [node._quorum.applied_index for node in nodes] == [before] * len(nodes)
        assert all(node._metadata.catalog.find("t") is None for node in nodes)

    in_cluster(play)
    assert "of the metadata log is not understood (Object contains unknown field `colour`" in caplog.text
    assert "start this node with the version of the others" in caplog.text
