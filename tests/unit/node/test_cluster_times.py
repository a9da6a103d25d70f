"""The quorum is as patient as the cluster is configured to be."""

from __future__ import annotations

import pytest

from goqueue.node.cluster.member import raft_config
from goqueue.node.config import ClusterConfig, NodeConfig


@pytest.mark.parametrize(("heartbeat_ms", "lease_renew_ms", "often_ms"), [(70, 90, 70), (90, 70, 70)])
def test_voters_wait_as_long_as_nodes_do_and_a_lease_is_renewed_in_time(
    heartbeat_ms: int, lease_renew_ms: int, often_ms: int
) -> None:
    cluster = ClusterConfig(
        heartbeat_ms=heartbeat_ms, suspect_ms=200, dead_ms=300, lease_ms=500, lease_renew_ms=lease_renew_ms
    )
    config = raft_config(NodeConfig(node_id="node-7", cluster=cluster))
    assert (config.name, config.heartbeat_ms, config.lease_ms) == ("node-7", often_ms, 500)
    assert (config.election_ms_min, config.election_ms_max) == (300, 600)
