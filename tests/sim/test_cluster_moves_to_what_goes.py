"""A partition goes when nothing is on its way to it, whichever nodes lead it and the ledger that has decided so."""

from __future__ import annotations

import asyncio

from tests.support.refusing_partitions import Refusing
from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.core.cluster.commands import ShrinkTopic
from goqueue.core.cluster.scaling import Scaling
from goqueue.node.node import Node
from goqueue.node.queue.polling import Poll
from goqueue.node.requests import ReadQuery
from goqueue.sim.kafka.history import Part

DLQ = "orders.dlq"
LEAVING = 1
LOOKS_S = 5.0
PARTITION_COUNT = 4  # of the topic; so one of them is led elsewhere than its dead letters


def scaling(node: Node) -> Scaling:
    found = node._metadata.catalog.scaling(DLQ)
    assert found is not None
    return found


async def bury_one(played: PlayedCluster) -> tuple[str, Refusing]:
    """A message dies that another node than the leader of its dead letter topic looks after, and its letter is refused. Who looks after
    it, and who refuses."""
    await played.create(num_partitions=PARTITION_COUNT)
    await played.create(DLQ, num_partitions=2, config={"scaling": "keyed"})
    refusing = await played.leader(Part(DLQ, LEAVING))
    for index in range(LEAVING, PARTITION_COUNT, 2):
        source = Part("orders", index)
        keeper = await played.leader(source)
        if keeper != refusing:
            break
    else:
        raise AssertionError("one node leads them all")
    assert await played.produce(keeper, "poison", part=source) == (0, 0)
    target = Refusing(played.node(refusing)._table.get(DLQ).partition(LEAVING))
    queue = played.node(keeper).queue
    (held,) = await queue.poll(Poll("workers", "ann", [source], 10, 1_000))
    await queue.reject([held.receipt], reason="bad")
    await played.until(lambda: target.refused_count > 0)
    return keeper, target


async def shrink(played: PlayedCluster) -> None:
    controller = played.cluster.controller()
    assert controller is not None
    node = played.node(controller.name)
    await node._metadata.execute(ShrinkTopic(DLQ, 1, discards_read=True))
    await played.until(lambda: scaling(node).stage == "draining")
    await asyncio.sleep(LOOKS_S)
    assert scaling(node).undrained == (LEAVING,), "a letter is on its way"


async def letters(played: PlayedCluster, asked: str) -> list[bytes | None]:
    """As whoever leads the partition that stays has them, by what the asked node knows."""
    node = played.node(asked)
    leader = node.directory.name_of(node._metadata.catalog.partition(DLQ, 0).leader)
    found = await played.node(leader).reader.read(DLQ, 0, ReadQuery(offset=0))
    return [record.value for record in found.records]


def test_a_partition_goes_when_the_letter_that_another_node_sends_there_has_arrived() -> None:
    async def play(played: PlayedCluster) -> None:
        keeper, target = await bury_one(played)
        await shrink(played)
        target.is_well = True
        await played.until(lambda: scaling(played.node(keeper)).stage == "steady")
        assert await letters(played, keeper) == [b"poison"]

    in_cluster(play)


def test_a_partition_goes_when_the_letter_of_a_node_that_died_has_arrived() -> None:
    async def play(played: PlayedCluster) -> None:
        keeper, target = await bury_one(played)
        await shrink(played)
        await played.cluster.hosts[keeper].crash(power_cut=True)
        other = next(name for name in played.cluster.names if name != keeper)
        await asyncio.sleep(LOOKS_S)
        assert scaling(played.node(other)).undrained == (LEAVING,)
        target.is_well = True
        await played.until(lambda: scaling(played.node(other)).stage == "steady")
        assert await letters(played, other) == [b"poison"]

    in_cluster(play)
