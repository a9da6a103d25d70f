"""Offsets in a transaction, of a client that asks before there are coordinators of transactions."""

from __future__ import annotations

from tests.support.sim_clusters import PlayedCluster, in_cluster

from goqueue.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from goqueue.sim.kafka.client import requests

GROUP_KIND = 0
COORDINATOR_NOT_AVAILABLE = 15


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
