"""The sink's cluster: the Kafka client, and its refusals in words that name the option or the setting to change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, ParamSpec, TypeVar

from goqueue.client.kafka import (
    AlreadyCommitted,
    BatchSender,
    Enrolled,
    KafkaCluster,
    KafkaError,
    ProducerIdentity,
    Unreachable,
)
from goqueue.pipeline.connection import CLIENT_ID, Connection
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.sink.ports import Batch, Cluster, Member, Sender

_USUAL_PARTITION_COUNT: Final = -1
_ALL: Final = "all"
_GIVEN_UP_MS: Final = 1_000
_QUESTION: Final = "question"  # no name of a task
_ENDED: Final = frozenset(
    {
        "TRANSACTION_ABORTABLE",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_TXN_STATE",
        "INVALID_PRODUCER_ID_MAPPING",
        "UNKNOWN_PRODUCER_ID",
    }
)
_HINTS: Final = {
    "INVALID_TRANSACTION_TIMEOUT": "set the option transaction.timeout.ms to what the broker allows",
    "UNKNOWN_TOPIC_OR_PARTITION": "the topic was deleted, or has fewer partitions, since the write began",
    "MESSAGE_TOO_LARGE": "max.message.bytes of the topic was made smaller since the write began, or batch.size is too large",
    "RECORD_LIST_TOO_LARGE": "set the option batch.size to less",
    "INVALID_TIMESTAMP": "the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms limit timestamps",
    "NOT_ENOUGH_REPLICAS": "min.insync.replicas of the topic is more than the broker has; lower it, or write with acks=1 and "
    "guarantee=at_least_once",
    "UNSUPPORTED_VERSION": "guarantee=exactly_once and per_task need a GoQueue broker; others take guarantee=at_least_once",
    "INVALID_RECORD": "a record is not as the topic wants it",
}

P = ParamSpec("P")
T = TypeVar("T")


def connect(connection: Connection) -> Cluster:
    return LiveCluster(connection)


class LiveCluster:
    """Of one task, or of one commit."""

    def __init__(self, connection: Connection) -> None:
        self._bootstrap = connection.bootstrap
        self._cluster = KafkaCluster(
            connection.bootstrap,
            security=connection.security,
            client_id=CLIENT_ID,
            timeout_s=connection.timeout_s,
        )

    def topics(self) -> dict[str, int]:
        return self._asked(self._cluster.topics)

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        return self._asked(self._cluster.topic_settings, topic)

    def create_topic(self, name: str) -> None:
        try:
            self._cluster.create_topic(name, _USUAL_PARTITION_COUNT)
        except KafkaError as error:
            if error.name != "TOPIC_ALREADY_EXISTS":  # another task was first
                raise told(error, self._bootstrap) from error

    def enrol(self, batch: Batch, name: str, *, timeout_ms: int) -> Member | None:
        found = self._asked(self._cluster.enrol, batch.joint_id, batch.batch_id, name, timeout_ms)
        if isinstance(found, AlreadyCommitted):
            return None
        return Member(found.transactional_id, found.producer_id, found.epoch)

    def sender(self, member: Member | None, acks: str) -> Sender:
        if member is not None:
            producer: ProducerIdentity | None = ProducerIdentity(member.producer_id, member.epoch)
        else:
            producer = self._asked(self._cluster.init_producer) if acks == _ALL else None
        return LiveSender(self._cluster, self._bootstrap, producer, member, acks)

    def commit(self, batch: Batch, winners: Sequence[Member]) -> bool:
        enrolled = [Enrolled(one.transactional_id, one.producer_id, one.epoch) for one in winners]
        outcome = self._asked(self._cluster.commit_joint, batch.joint_id, batch.batch_id, enrolled)
        return outcome == "committed"

    def is_committed(self, batch: Batch) -> bool:
        """Whoever enrols is told. If it is not committed, a member that writes nothing is enrolled for a moment."""
        return self.enrol(batch, _QUESTION, timeout_ms=_GIVEN_UP_MS) is None

    def abort(self, batch: Batch) -> None:
        self._asked(self._cluster.abort_joint, batch.joint_id, batch.batch_id)

    def give_up(self, batch: Batch, name: str) -> None:
        """Whoever enrols under the same name takes its place, and what it wrote is aborted; the new one writes nothing."""
        self.enrol(batch, name, timeout_ms=_GIVEN_UP_MS)

    def close(self) -> None:
        self._cluster.close()

    def _asked(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except KafkaError as error:
            raise told(error, self._bootstrap) from error


class LiveSender:
    def __init__(
        self,
        cluster: KafkaCluster,
        bootstrap: str,
        producer: ProducerIdentity | None,
        member: Member | None,
        acks: str,
    ) -> None:
        transactional_id = member.transactional_id if member is not None else None
        self._sender = BatchSender(cluster, producer, transactional_id, acks)
        self._producer = producer
        self._bootstrap = bootstrap

    @property
    def producer(self) -> tuple[int, int] | None:
        return self._producer

    def sequence(self, topic: str, partition: int) -> int:
        return self._sender.sequence(topic, partition)

    def send(self, topic: str, partition: int, batch: bytes) -> None:
        try:
            self._sender.send(topic, partition, batch)
        except KafkaError as error:
            raise told(error, self._bootstrap) from error

    def flush(self) -> None:
        try:
            self._sender.flush()
        except KafkaError as error:
            raise told(error, self._bootstrap) from error

    def close(self) -> None:
        self._sender.close()


def told(error: KafkaError, bootstrap: str) -> PipelineError:
    """The refusal, and what would be right."""
    if isinstance(error, Unreachable):
        return PipelineError(
            f"no broker of {bootstrap} answers ({error.sentence}); is it running, and is bootstrap.servers right? "
            "request.timeout.ms says how long to wait for one that restarts"
        )
    if error.name in _ENDED:
        return PipelineError(
            f"the transaction has ended before the write did ({error.sentence}): it took longer than the option "
            "transaction.timeout.ms allows, or a later run of the same query has taken its place. Nothing of it can be "
            "seen. Raise transaction.timeout.ms, write less at a time, or use guarantee=per_task"
        )
    hint = _HINTS.get(error.name)
    return PipelineError(error.sentence if hint is None else f"{error.sentence}; {hint}")
