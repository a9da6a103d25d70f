"""Offsets in a transaction: of a client that asks before there are coordinators of transactions, and of one that has ended meanwhile."""

from __future__ import annotations

import asyncio
from random import Random

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from goqueue.sim.cluster.client import ClusterClient
from goqueue.sim.kafka.client import requests

GROUP_KIND, TRANSACTION_KIND = 0, 1
NONE, COORDINATOR_NOT_AVAILABLE, TRANSACTION_ABORTABLE = 0, 15, 120


def test_offsets_before_any_transaction_are_told_that_there_is_no_coordinator_and_of_no_missing_topic() -> (
    None
):
    async def play(played: PlayedCluster) -> None:
        await played.create(replication_factor=3)
        asked = played.cluster.names[0]
        found = await played.client.ask(
            asked, "find_coordinator", 4, key_type=GROUP_KIND, coordinator_keys=["workers"]
        )
        assert found.coordinators[0].error_code == 0
        await played.until(lambda: not played.cluster.unsettled())
        tables = [played.node(name)._table for name in played.cluster.names]
        assert all(table.internal(OFFSETS_TOPIC) is not None for table in tables)
        assert all(table.internal(TRANSACTIONS_TOPIC) is None for table in tables)
        kinds = requests("txn_offset_commit")
        row = kinds.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        answer = await played.client.ask(
            found.coordinators[0].host,
            "txn_offset_commit",
            3,
            transactional_id="app",
            group_id="workers",
            producer_id=7,
            producer_epoch=0,
            topics=[kinds.TxnOffsetCommitRequestTopic(name="orders", partitions=[row])],
        )
        assert answer.topics[0].partitions[0].error_code == COORDINATOR_NOT_AVAILABLE

    in_cluster(play)


def test_offsets_that_wait_for_their_group_to_be_read_while_their_transaction_ends_are_refused() -> None:
    """Pending after that they would be so for ever, and nobody could read on."""

    async def play(played: PlayedCluster) -> None:
        await played.create()
        group = await found(played, GROUP_KIND, "workers")
        coordinator = await found(played, TRANSACTION_KIND, "app")
        await played.until(lambda: not played.cluster.unsettled())
        owner = await played.client.ask(
            coordinator, "init_producer_id", 3, transactional_id="app", transaction_timeout_ms=60_000
        )
        producer = {
            "transactional_id": "app",
            "producer_id": owner.producer_id,
            "producer_epoch": owner.producer_epoch,
        }
        added = await played.client.ask(coordinator, "add_offsets_to_txn", 3, group_id="workers", **producer)
        assert added.error_code == NONE
        shards = played.node(group).groups.shards._shards
        wait, is_waiting, is_read = shards.wait, asyncio.Event(), asyncio.Event()

        async def late(index: int) -> None:
            is_waiting.set()
            await is_read.wait()
            await wait(index)

        shards.wait = late  # type: ignore[method-assign]  # it reads its log
        kinds = requests("txn_offset_commit")
        row = kinds.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = kinds.TxnOffsetCommitRequestTopic(name="orders", partitions=[row])
        committing = asyncio.create_task(
            played.client.ask(group, "txn_offset_commit", 3, group_id="workers", topics=[topic], **producer)
        )
        await is_waiting.wait()
        other = ClusterClient("other", played.cluster.names, Random(9))
        ended = await other.ask(coordinator, "end_txn", 3, committed=True, **producer)
        assert ended.error_code == NONE
        is_read.set()
        answer = await committing
        assert answer.topics[0].partitions[0].error_code == TRANSACTION_ABORTABLE
        assert not played.node(group).groups.shards.state("workers").offsets.has_group("workers")
        other.close()

    in_cluster(play)


async def found(played: PlayedCluster, kind: int, name: str) -> str:
    """The node that coordinates it."""
    asked = played.cluster.names[0]
    answer = await played.client.ask(asked, "find_coordinator", 4, key_type=kind, coordinator_keys=[name])
    assert answer.coordinators[0].error_code == NONE
    return str(answer.coordinators[0].host)
