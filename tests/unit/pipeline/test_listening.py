"""Progress of queries as numbers, metrics and group offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest

from goqueue.client.kafka.errors import KafkaError, Unreachable
from goqueue.pipeline.connection import Connection
from goqueue.pipeline.listening import GroupOffsets, Metrics, Progress, group_of, read_progress

EVENT = {
    "name": "orders/minutes",
    "batchId": 7,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "batchDuration": 530,
    "numInputRows": 100,
    "sources": [
        {
            "endOffset": {"@from": {}, "orders": {"0": 40, "1": 60}},
            "latestOffset": {"orders": {"0": 45, "1": 60, "2": 3}},
        },
        {"endOffset": {"logOffset": 3}, "latestOffset": None},
        {"endOffset": 12, "latestOffset": 13},
    ],
    "observedMetrics": {"goqueue_rows": {"count": 12}},
    "stateOperators": [],
}


class FakeCluster:
    def __init__(self, failures: int = 0) -> None:
        self.committed: list[tuple[str, Mapping[tuple[str, int], int]]] = []
        self.is_closed = False
        self._failures = failures

    def commit_group(self, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
        if self._failures:
            self._failures -= 1
            raise Unreachable("nobody listens there")
        self.committed.append((group_id, dict(offsets)))

    def close(self) -> None:
        self.is_closed = True


def _progress(batch_id: int) -> Progress:
    return read_progress(json.dumps({**EVENT, "batchId": batch_id}))


def test_progress_has_the_offsets_and_lag_of_our_sources_only() -> None:
    progress = read_progress(json.dumps(EVENT))
    assert progress.offsets == {("orders", 0): 40, ("orders", 1): 60}
    assert progress.lag == {"orders": 5 + 0 + 3}
    assert (progress.rows_in, progress.rows_out, progress.duration_ms) == (100, 12, 530)


def test_of_two_sources_with_one_topic_the_one_behind_is_published() -> None:
    ends = ({"orders": {"0": 7, "1": 1}}, {"orders": {"0": 3, "1": 2}})
    sources = [{"endOffset": end, "latestOffset": {"orders": {"0": 9, "1": 2}}} for end in ends]
    progress = read_progress(json.dumps({**EVENT, "sources": sources}))
    assert progress.offsets == {("orders", 0): 3, ("orders", 1): 1}


def test_rows_that_nobody_counts_are_not_known() -> None:
    assert read_progress(json.dumps({**EVENT, "observedMetrics": {}})).rows_out is None


def test_metrics_count_what_queries_did() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.started("orders/lake")
    metrics.progressed(_progress(6))
    metrics.progressed(_progress(7))
    metrics.ended("orders/minutes", None)
    metrics.ended("orders/minutes", "it broke")
    text = generate_latest(registry).decode()
    labels = 'pipeline="orders",query="minutes"'
    assert f"goqueue_pipeline_rows_read_total{{{labels}}} 200.0" in text
    assert f"goqueue_pipeline_rows_written_total{{{labels}}} 24.0" in text
    assert f"goqueue_pipeline_batch_last{{{labels}}} 7.0" in text
    assert f"goqueue_pipeline_failures_total{{{labels}}} 1.0" in text
    assert f"goqueue_pipeline_batch_seconds_count{{{labels}}} 2.0" in text
    assert f'goqueue_pipeline_lag_records{{{labels},topic="orders"}} 8.0' in text
    assert 'goqueue_pipeline_rows_read_total{pipeline="orders",query="lake"} 0.0' in text


def test_offsets_are_published_under_the_querys_group_before_the_end() -> None:
    cluster = FakeCluster()
    groups = GroupOffsets(Connection("h:1"), lambda _: cluster)
    groups.progressed(_progress(7))
    groups.close()
    assert cluster.committed == [("orders.minutes", {("orders", 0): 40, ("orders", 1): 60})]
    assert cluster.is_closed
    assert groups.failure is None
    assert group_of("orders/minutes") == "orders.minutes"


def test_broker_that_does_not_take_offsets_costs_nothing_but_is_told() -> None:
    cluster = FakeCluster(failures=1)
    groups = GroupOffsets(Connection("h:1"), lambda _: cluster)
    groups.progressed(_progress(7))
    groups.close()
    assert cluster.committed == []
    assert groups.failure is not None
    assert issubclass(Unreachable, KafkaError)


def test_sources_that_are_not_ours_are_not_published() -> None:
    cluster = FakeCluster()
    groups = GroupOffsets(Connection("h:1"), lambda _: cluster)
    groups.progressed(read_progress(json.dumps({**EVENT, "sources": EVENT["sources"][1:]})))  # type: ignore[index]  # a list
    groups.close()
    assert cluster.committed == []
