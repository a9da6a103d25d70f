"""A member of a share group that speaks the protocol itself, over the APIs of a node without a socket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.support.kafka_calls import Kafka, requests

from goqueue.api.kafka.call import Closing
from goqueue.log.batch import decode_batch, read_header
from goqueue.model.topic_ids import topic_id
from goqueue.node.node import Node

_F = requests("share_fetch")
_A = requests("share_acknowledge")
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Got(NamedTuple):
    partition: int
    offset: int
    value: bytes | None
    deliveries: int


class Said(NamedTuple):
    """`kinds` is one for all offsets or one for each."""

    first: int
    last: int
    kinds: Sequence[int]
    partition: int = 0
    topic: str = "orders"


class ShareMember:
    def __init__(
        self, kafka: Kafka, node: Node, *, group: str = "g", member: str = "m", version: int = 2
    ) -> None:
        self._kafka = kafka
        self._node = node
        self.group = group
        self.member = member
        self._version = version
        self.epoch = 0
        self.closing = Closing()
        self.member_epoch = 0

    async def join(self, *topics: str) -> None:
        await self.heartbeat(0, topics or ("orders",))

    async def leave(self) -> None:
        await self.heartbeat(-1)

    async def heartbeat(self, epoch: int, topics: Sequence[str] | None = None) -> None:
        answer = await self._kafka.call(
            "share_group_heartbeat",
            1,
            group_id=self.group,
            member_id=self.member,
            member_epoch=epoch,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        assert answer.error_code == 0, answer.error_message
        self.member_epoch = answer.member_epoch

    async def ask(
        self,
        *said: Said,
        partitions: Sequence[int] = (),
        forgotten: Sequence[int] = (),
        topic: str = "orders",
        epoch: int | None = None,
        limit: int = 500,
        wait_ms: int = 0,
        bytes_max: int = 50 * 1024 * 1024,
        **fields: Any,
    ) -> Any:
        """The answer to a ShareFetch; the epoch advances as clients have it."""
        sent = self.epoch if epoch is None else epoch
        answer = await self._kafka.call_over(
            self.closing,
            "share_fetch",
            self._version,
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=sent,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            max_records=limit,
            batch_size=limit,
            topics=self._fetch_topics(said, [(topic, index) for index in partitions]),
            forgotten_topics_data=[
                _F.ForgottenTopic(topic_id=self.topic_id(topic), partitions=list(forgotten))
            ]
            if forgotten
            else [],
            **fields,
        )
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return answer

    async def open(self, *partitions: int, **options: Any) -> list[Got]:
        self.epoch = 0
        return records(await self.ask(partitions=partitions or (0,), **options))

    async def fetch(self, *said: Said, **options: Any) -> list[Got]:
        return records(await self.ask(*said, **options))

    async def say(self, *said: Said, epoch: int | None = None, **fields: Any) -> Any:
        """The answer to a ShareAcknowledge."""
        answer = await self._kafka.call_over(
            self.closing,
            "share_acknowledge",
            self._version,
            group_id=self.group,
            member_id=self.member,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=self._said_topics(said),
            **fields,
        )
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return answer

    async def codes(self, *said: Said, **options: Any) -> list[int]:
        answer = await self.say(*said, **options)
        assert answer.error_code == 0, answer.error_message
        return [one.error_code for topic in answer.responses for one in topic.partitions]

    def topic_id(self, topic: str) -> bytes:
        return topic_id(self._node.topics.id_of(topic))

    def _fetch_topics(self, said: Sequence[Said], places: Sequence[tuple[str, int]]) -> list[Any]:
        return [
            _F.FetchTopic(
                topic_id=self.topic_id(topic),
                partitions=[
                    _F.FetchPartition(
                        partition_index=index, acknowledgement_batches=_batches(_F, said, topic, index)
                    )
                ],
            )
            for topic, index in dict.fromkeys([*places, *((one.topic, one.partition) for one in said)])
        ]

    def _said_topics(self, said: Sequence[Said]) -> list[Any]:
        return [
            _A.AcknowledgeTopic(
                topic_id=self.topic_id(topic),
                partitions=[
                    _A.AcknowledgePartition(
                        partition_index=index, acknowledgement_batches=_batches(_A, said, topic, index)
                    )
                ],
            )
            for topic, index in dict.fromkeys((one.topic, one.partition) for one in said)
        ]


def _batches(classes: Any, said: Sequence[Said], topic: str, index: int) -> list[Any]:
    return [
        classes.AcknowledgementBatch(
            first_offset=one.first, last_offset=one.last, acknowledge_types=list(one.kinds)
        )
        for one in said
        if (one.topic, one.partition) == (topic, index)
    ]


def records(answer: Any) -> list[Got]:
    """Those that the member has got: of the batches in an answer only what is acquired."""
    assert answer.error_code == 0, answer.error_message
    found: list[Got] = []
    for topic in answer.responses:
        for one in topic.partitions:
            assert one.error_code == 0, one.error_message
            assert one.acknowledge_error_code == 0, one.acknowledge_error_message
            values = {record.offset: record.value for record in _decoded(bytes(one.records))}
            for run in one.acquired_records:
                for offset in range(run.first_offset, run.last_offset + 1):
                    found.append(Got(one.partition_index, offset, values[offset], run.delivery_count))
    return found


def _decoded(data: bytes) -> list[Any]:
    found: list[Any] = []
    while data:
        header = read_header(data)
        found += decode_batch(data[: header.size], header)
        data = data[header.size :]
    return found
