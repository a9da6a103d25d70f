"""What clients of coordinators hear while those cannot serve them: only 15 makes every one of them try again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.kafka_calls import Kafka, requests, with_kafka
from tests.support.nodes import create

from goqueue.api.kafka.context import code_of, coordinator_code
from goqueue.model.cluster_errors import CoordinatorLoading, NotCoordinator, NotLeader, ReplicationUnknown
from goqueue.model.errors import (
    CoordinatorNotAvailable,
    DiskFull,
    GoQueueError,
    NotEnoughReplicas,
    NotReady,
    PartitionOffline,
    StorageError,
    TimedOut,
    UnknownMember,
)
from goqueue.node.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, InternalTopics
from goqueue.node.node import Node

COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
UNKNOWN_MEMBER_ID = 25


@pytest.mark.parametrize(
    "kind",
    [
        CoordinatorNotAvailable,
        DiskFull,
        NotEnoughReplicas,
        NotReady,
        PartitionOffline,
        ReplicationUnknown,
        StorageError,
        TimedOut,
    ],
)
def test_what_passes_is_a_coordinator_that_is_not_available(kind: type[GoQueueError]) -> None:
    assert coordinator_code(kind("not now")) == COORDINATOR_NOT_AVAILABLE


def test_other_errors_of_a_coordinator_keep_their_codes() -> None:
    errors: Mapping[GoQueueError, int] = {
        NotLeader("__consumer_offsets", 3): NOT_COORDINATOR,
        NotCoordinator("ask another"): NOT_COORDINATOR,
        CoordinatorLoading("in a moment"): COORDINATOR_LOAD_IN_PROGRESS,
        UnknownMember("who?"): UNKNOWN_MEMBER_ID,
    }
    assert {error: coordinator_code(error) for error in errors} == errors
    assert coordinator_code(None) == 0
    assert code_of(NotEnoughReplicas("of a partition")) == 19, "who produces is told what it is"


# -------------------------------------------------------------------- while a new cluster lacks nodes

ORDERS_0: Mapping[str, Any] = {"partition_index": 0, "committed_offset": 7}


def lack_nodes(node: Node) -> None:
    async def create_internal(name: str, **options: Any) -> None:
        raise NotEnoughReplicas("3 replicas are wanted, and 2 nodes have joined")

    node.topics.create_internal = create_internal  # type: ignore[method-assign]  # no controller would make it


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_a_topic_of_coordinators_that_waits_for_nodes_says_so(name: str) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        lack_nodes(node)
        with pytest.raises(CoordinatorNotAvailable, match="2 nodes have joined"):
            await InternalTopics(node.topics, node._table, node.clock).ensure(name)

    with_kafka(main)


def committed(api: str) -> list[Any]:
    kinds = requests(api)
    topic, partition = (
        (kinds.OffsetCommitRequestTopic, kinds.OffsetCommitRequestPartition)
        if api == "offset_commit"
        else (kinds.TxnOffsetCommitRequestTopic, kinds.TxnOffsetCommitRequestPartition)
    )
    return [topic(name="orders", partitions=[partition(**ORDERS_0)])]


def joining() -> Mapping[str, Any]:
    protocol = requests("join_group").JoinGroupRequestProtocol(name="range", metadata=b"")
    return {
        "group_id": "g",
        "member_id": "",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [protocol],
    }


BEATING: Mapping[str, Any] = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "subscribed_topic_names": ["orders"],
}
CALLS: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "join": ("join_group", 3, joining()),
    "consumer": (
        "consumer_group_heartbeat",
        0,
        {**BEATING, "rebalance_timeout_ms": 10_000, "topic_partitions": []},
    ),
    "share": ("share_group_heartbeat", 1, BEATING),
    "commit": (
        "offset_commit",
        7,
        {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": committed("offset_commit"),
        },
    ),
    "init": (
        "init_producer_id",
        4,
        {
            "transactional_id": "app",
            "transaction_timeout_ms": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        },
    ),
}


def codes(answer: Any) -> set[int]:
    if hasattr(answer, "topics"):
        return {one.error_code for topic in answer.topics for one in topic.partitions}
    return {answer.error_code}


@pytest.mark.parametrize("what", CALLS)
def test_clients_of_coordinators_try_again_while_a_new_cluster_lacks_nodes(what: str) -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        await create(node)
        create_internal = node.topics.create_internal
        lack_nodes(node)
        api, version, fields = CALLS[what]
        assert codes(await kafka.call(api, version, **fields)) == {COORDINATOR_NOT_AVAILABLE}
        node.topics.create_internal = create_internal  # type: ignore[method-assign]  # the third has joined
        assert codes(await kafka.call(api, version, **fields)) == {0}

    with_kafka(main)
