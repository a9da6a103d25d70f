"""What a start costs does not grow with the square of a topic's partitions: a listing of its folder names all of them."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.sim_clusters import PlayedCluster, in_cluster

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
