"""How long a node waits for another, as the timings of its cluster have it."""

from __future__ import annotations

from goqueue.node.config import ClusterConfig
from goqueue.peer.dialling import LinkTimes


def link_times(config: ClusterConfig) -> LinkTimes:
    """The usual patience, or less where the cluster has less: whoever has not answered a message or a heartbeat for as long as
    makes a node dead is not waited for, and a fetch not longer than makes a replica fall behind."""
    usual = LinkTimes()
    return LinkTimes(
        connect_ms=min(usual.connect_ms, config.dead_ms),
        message_ms=min(usual.message_ms, config.dead_ms),
        beat_ms=min(usual.beat_ms, config.dead_ms),
        ask_ms=config.command_timeout_ms,
        call_ms=usual.call_ms,
        fetch_slack_ms=min(usual.fetch_slack_ms, config.replica_lag_ms_max),
    )
