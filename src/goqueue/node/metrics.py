"""Everything the broker counts, in one registry of its own. Names: goqueue_<family>_<noun>_<unit>."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

_SYNC_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
_LAG_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(namespace="goqueue", registry=self.registry)
        self.published_messages = self._counter("broker_published_messages", "Messages stored.")
        self.published_bytes = self._counter("broker_published_bytes", "Bytes of batches stored.")
        self.duplicate_batches = self._counter(
            "broker_duplicate_batches", "Batches of idempotent producers that had been stored before."
        )
        self.refused_messages = Counter(
            "goqueue_broker_refused_messages",
            "Messages refused, by error code.",
            ["code"],
            registry=self.registry,
        )
        self.read_messages = self._counter("broker_read_messages", "Messages handed to readers.")
        self.read_bytes = self._counter("broker_read_bytes", "Bytes of batches read for readers.")
        self.parked_reads = self._gauge("broker_parked_reads", "Reads that wait for data.")
        self.topics = self._gauge("broker_topics", "Topics.")
        self.partitions = self._gauge("broker_partitions", "Partitions of all topics.")
        self.loop_lag = self._histogram(
            "broker_event_loop_lag_seconds", "How late the event loop runs its timers.", _LAG_BUCKETS
        )
        self.sync_time = self._histogram(
            "storage_sync_seconds", "Time of an fsync that a group commit waited for.", _SYNC_BUCKETS
        )
        self.sync_failures = self._counter(
            "storage_sync_failures", "fsyncs that failed; each stopped a partition."
        )
        self.damage = self._counter("storage_damage", "Damaged ranges found at recovery or on read.")
        self.log_bytes = self._gauge("storage_log_bytes", "Bytes in all logs.")
        self.deleted_bytes = self._counter("storage_deleted_bytes", "Bytes that retention deleted.")
        self.compacted_bytes = self._counter("storage_compacted_bytes", "Bytes that compaction read.")
        self.disk_used_ratio = self._gauge("storage_disk_used_ratio", "Used share of the data folder's disk.")
        self.writes_refused = self._gauge(
            "storage_writes_refused", "1 while the disk is too full for writes."
        )

    def render(self) -> tuple[bytes, str]:
        """The text exposition and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"goqueue_{name}", text, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"goqueue_{name}", text, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"goqueue_{name}", text, buckets=buckets, registry=self.registry)
