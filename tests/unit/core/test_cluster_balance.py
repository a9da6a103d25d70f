"""Leaders come back to where they were planned."""

from __future__ import annotations

import pytest
from tests.support.catalogs import CatalogRun

from goqueue.core.catalog import ElectLeaders, ReassignPartitions
from goqueue.core.cluster.balance import to_elect


@pytest.fixture
def cluster() -> CatalogRun:
    """Node 1 was down: it is back in sync everywhere but in `c`, and leads nothing yet."""
    cluster = CatalogRun(3)
    for name in ("a", "b", "c", "d"):
        cluster.create(1, 2, name=name)
    cluster.create(2, 1, name="e")
    cluster.fence(1)
    cluster.unfence(1)
    for name in ("a", "b", "d"):
        cluster.propose(1, 2, topic=name)
    return cluster


def planned(cluster: CatalogRun, count_max: int = 100) -> list[tuple[str, int]]:
    catalog = cluster.catalog
    states = {node.number: node.state for node in catalog.nodes()}
    return to_elect(catalog.astray(), states, count_max=count_max)


def test_partitions_go_back_to_their_preferred_replica_if_it_is_in_sync(cluster: CatalogRun) -> None:
    assert [topic for topic, _, _ in cluster.catalog.astray()] == ["a", "b", "c", "d"]
    assert planned(cluster) == [("a", 0), ("b", 0), ("d", 0)]
    cluster.run(ElectLeaders(planned(cluster)))
    assert cluster.catalog.led_by(1) == [("a", 0), ("b", 0), ("d", 0)]
    assert planned(cluster) == []


def test_a_round_moves_only_so_many(cluster: CatalogRun) -> None:
    assert planned(cluster, count_max=2) == [("a", 0), ("b", 0)]
    assert planned(cluster, count_max=0) == []


def test_nothing_goes_to_a_node_that_drains_or_is_down(cluster: CatalogRun) -> None:
    cluster.drain(1)
    assert planned(cluster) == []
    cluster.fence(1)
    assert planned(cluster) == []


def test_what_is_being_moved_is_left_alone(cluster: CatalogRun) -> None:
    cluster.run(ReassignPartitions([("a", 0, [1, 3])]))
    assert planned(cluster) == [("b", 0), ("d", 0)]
