"""How a node is: what its probes and its operators are told."""

from __future__ import annotations

import asyncio

from goqueue.core.cluster.nodes import NodeState as EntryState
from goqueue.node.cluster.quorum_log import QuorumLog
from goqueue.node.config import NodeConfig
from goqueue.node.disk_watch import DiskWatch
from goqueue.node.guard import Guard, NodeState
from goqueue.node.metadata import Metadata
from goqueue.node.requests import Health
from goqueue.node.topic_table import TopicTable


class Vitals:
    def __init__(
        self,
        config: NodeConfig,
        guard: Guard,
        table: TopicTable,
        disk_watch: DiskWatch,
        metadata: Metadata,
        quorum_log: QuorumLog,
    ) -> None:
        self._config = config
        self._guard = guard
        self._table = table
        self._disk_watch = disk_watch
        self._metadata = metadata
        self._quorum_log = quorum_log

    def health(self, *, has_failed: bool, started_at: float) -> Health:
        state = self._guard.state
        logs = [one.log for one in self._table.partitions()]
        if self._quorum_log.is_open:
            logs.append(self._quorum_log.partition.log)
        offline = [log.folder for log in logs if log.failure is not None]
        checks = {
            "node": "ok" if state is NodeState.READY else state.value,
            "disk": self._disk_watch.summary,
            "partitions": "ok" if not offline else f"offline: {', '.join(offline[:10])}",
        }
        is_member = True
        if not self._config.is_solo:
            checks["cluster"] = self._membership()
            is_member = checks["cluster"] == "ok"
        return Health(
            is_live=not has_failed,
            is_ready=state is NodeState.READY and not has_failed and is_member,
            state=state.value,
            uptime_ms=int((asyncio.get_running_loop().time() - started_at) * 1_000),
            checks=checks,
        )

    def _membership(self) -> str:
        """ "ok", or why other nodes cannot count on this one."""
        if self._metadata.quorum.leader is None:
            return "no controller is known"
        entry = self._metadata.catalog.node(self._config.node_id)
        return "fenced" if entry is None or entry.state is EntryState.FENCED else "ok"

    def stats(self) -> dict[str, int | float | str]:
        partitions = self._table.partitions()
        return {
            "node_id": self._config.node_id,
            "state": self._guard.state.value,
            "topics": len(self._table.all()),
            "partitions": len(partitions),
            "messages": sum(one.log.end - one.log.log_start for one in partitions),
            "bytes": sum(one.log.size_bytes for one in partitions),
            "parked_reads": self._guard.parked_count,
            "disk_used_percent": round(self._disk_watch.used_percent, 1),
        }
