"""What a follower wants of its leader, as Kafka's Fetch, and what the leader has for it.

Version 12 is the last one that names topics by their names, and the first that says where a follower's log diverges.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from goqueue.node.cluster.ports import ReplicaFound, ReplicaRound
from goqueue.peer.refusals import fetch_error
from goqueue.wire.schema import request_schema

API = "fetch"
VERSION = 12
_SESSION = 1
_Q: Any = SimpleNamespace(**request_schema(API).classes)  # made at run time: mypy cannot know them


def fetch_request(round: ReplicaRound, *, replica: int, wait_ms: int, bytes_max: int) -> Any:
    """Rounds are Kafka's sessions (KIP-227), of which a connection has one."""
    topics: dict[str, list[Any]] = {}
    for want in round.wants:
        topics.setdefault(want.topic, []).append(
            _Q.FetchPartition(
                partition=want.partition,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                last_fetched_epoch=want.last_epoch,
                log_start_offset=want.log_start,
                partition_max_bytes=want.bytes_max,
            )
        )
    return _Q.FetchRequest(
        replica_id=replica,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        session_id=_SESSION if round.number else 0,
        session_epoch=round.number,
        forgotten_topics_data=[
            _Q.ForgottenTopic(topic=topic, partitions=[partition]) for topic, partition in round.forgotten
        ],
        topics=[_Q.FetchTopic(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def fetch_found(answer: Any, target: str) -> list[ReplicaFound]:
    """Raises what concerns the fetch as a whole."""
    if answer.error_code:
        raise fetch_error(answer.error_code, target, "", -1)
    return [
        _found(target, topic.topic, partition) for topic in answer.responses for partition in topic.partitions
    ]


def _found(target: str, topic: str, partition: Any) -> ReplicaFound:
    code, index, diverging = partition.error_code, partition.partition_index, partition.diverging_epoch
    return ReplicaFound(
        topic=topic,
        partition=index,
        error=fetch_error(code, target, topic, index) if code else None,
        high_watermark=partition.high_watermark,
        log_start=partition.log_start_offset,
        diverging=(diverging.epoch, diverging.end_offset) if diverging.end_offset >= 0 else None,
        records=partition.records or b"",
    )
