"""What a start costs does not grow with the square of a topic's partitions: a listing of its folder names all of them."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.cluster.commands import MakeCompanion
from goqueue.log.disk import Entry
from goqueue.sim.disk import Mount

FEW, MANY = 2, 16
TOPIC = "logs/orders"


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each folder is listed, on any node."""
    counted: Counter[str] = Counter()
    listed = Mount.list

    def counting(mount: Mount, path: str) -> list[Entry]:
        counted[path] += 1
        return listed(mount, path)

    monkeypatch.setattr(Mount, "list", counting)
    return counted


def test_the_folder_of_a_topic_is_listed_as_often_however_many_partitions_are_made_or_opened(
    listings: Counter[str],
) -> None:
    def counts(partition_count: int) -> tuple[int, int]:
        async def play(played: PlayedCluster) -> tuple[int, int]:
            listings.clear()
            await played.create(num_partitions=partition_count)
            made = listings[TOPIC]
            listings.clear()
            await played.start_again()
            return made, listings[TOPIC]

        return in_cluster(play)

    assert counts(MANY) == counts(FEW)


def test_the_companions_of_a_topic_are_made_and_opened_together(listings: Counter[str]) -> None:
    ledgers = "logs/__ledger.orders"

    def counts(partition_count: int) -> tuple[int, int]:
        async def play(played: PlayedCluster) -> tuple[int, int]:
            await played.create(num_partitions=partition_count)
            await played.node("node-1")._metadata.execute(MakeCompanion("orders", "ledger"))
            await played.until(lambda: are_open(played, partition_count))
            made = listings[ledgers]
            listings.clear()
            await played.start_again()
            await played.until(lambda: are_open(played, partition_count))
            return made, listings[ledgers]

        listings.clear()
        return in_cluster(play)

    assert counts(MANY) == counts(FEW)


def are_open(played: PlayedCluster, count: int) -> bool:
    tables = [played.node(name)._table for name in played.cluster.names]
    return all(len(table.companions_of("orders", index)) == 1 for table in tables for index in range(count))
