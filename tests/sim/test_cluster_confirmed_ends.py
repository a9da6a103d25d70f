"""A transaction's end that asks for what is so already is answered by who coordinates it, and not by who did until a moment ago and
takes it for an end of before."""

from __future__ import annotations

import asyncio

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.node.internal_topics import PARTITION_COUNT, transaction_partition
from goqueue.sim.kafka.client import requests

TRANSACTION_KIND = 1
NOT_COORDINATOR = 16
ANSWERED_S_MAX = 5.0
HOME = transaction_partition("app", PARTITION_COUNT)
Owner = tuple[int, int]  # producer id and epoch


def coordinators(played: PlayedCluster) -> list[str]:
    """Whoever takes itself for one."""
    names = played.cluster.names
    return [name for name in names if played.node(name).transactions._coordinator.shards.has_loaded(HOME)]


async def begin(played: PlayedCluster) -> tuple[str, Owner]:
    """The coordinator, and a producer that has committed its first transaction."""
    await played.create()
    asked = played.cluster.names[0]
    found = await played.client.ask(
        asked, "find_coordinator", 4, key_type=TRANSACTION_KIND, coordinator_keys=["app"]
    )
    assert found.coordinators[0].error_code == 0
    await played.until(lambda: not played.cluster.unsettled() and bool(coordinators(played)))
    (coordinator,) = coordinators(played)
    owner = await played.client.ask(
        coordinator, "init_producer_id", 3, transactional_id="app", transaction_timeout_ms=60_000
    )
    assert owner.error_code == 0
    producer = owner.producer_id, owner.producer_epoch
    assert await add(played, coordinator, producer) == 0
    assert await end(played, coordinator, producer) == 0
    return coordinator, producer


async def add(played: PlayedCluster, host: str, producer: Owner) -> int:
    """As clients from before KIP-890 do."""
    kinds = requests("add_partitions_to_txn")
    answer = await played.client.ask(
        host,
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id="app",
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[kinds.AddPartitionsToTxnTopic(name="orders", partitions=[0])],
    )
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


async def end(played: PlayedCluster, host: str, producer: Owner) -> int:
    """With a commit; the next transaction has the same epoch."""
    id, epoch = producer
    answer = await played.client.ask(
        host, "end_txn", 4, transactional_id="app", producer_id=id, producer_epoch=epoch, committed=True
    )
    return int(answer.error_code)


async def another_coordinator(played: PlayedCluster, old: str) -> str:
    await played.until(lambda: len(coordinators(played)) == 2)
    (new,) = (name for name in coordinators(played) if name != old)
    return new


def test_a_coordinator_that_was_replaced_does_not_take_the_end_of_a_transaction_for_that_of_the_one_before() -> (
    None
):
    async def play(played: PlayedCluster) -> None:
        old, producer = await begin(played)
        played.isolate(old)
        new = await another_coordinator(played, old)
        async with asyncio.timeout(30):
            while await add(played, new, producer):  # noqa: ASYNC110 - the first transaction is being completed
                await asyncio.sleep(0.1)
        assert old in coordinators(played)
        started = played.loop.time()
        assert await end(played, old, producer) == NOT_COORDINATOR
        assert played.loop.time() - started < ANSWERED_S_MAX
        assert await end(played, new, producer) == 0
        played.heal()
        await played.until(lambda: not played.cluster.unsettled())

    in_cluster(play)


def test_a_coordinator_that_was_replaced_does_not_say_that_a_partition_is_in_the_transaction() -> None:
    async def play(played: PlayedCluster) -> None:
        old, producer = await begin(played)
        assert await add(played, old, producer) == 0
        played.isolate(old)
        new = await another_coordinator(played, old)
        assert await end(played, new, producer) == 0
        assert old in coordinators(played)
        assert await add(played, old, producer) == NOT_COORDINATOR
        assert await add(played, new, producer) == 0

    in_cluster(play)


def test_an_end_that_is_asked_for_again_is_confirmed_by_the_coordinator() -> None:
    async def play(played: PlayedCluster) -> None:
        coordinator, producer = await begin(played)
        assert await end(played, coordinator, producer) == 0

    in_cluster(play)
