"""What every family of APIs works with: the node, and how this broker is known to clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from goqueue.model.cluster_errors import NotLeader, ReplicationUnknown
from goqueue.model.codes import WIRE
from goqueue.model.errors import (
    DiskFull,
    GoQueueError,
    NotEnoughReplicas,
    NotReady,
    PartitionOffline,
    StorageError,
    TimedOut,
    UnknownTopicId,
)
from goqueue.model.topic_ids import topic_id, topic_number
from goqueue.node.directory import Broker, split_address
from goqueue.node.node import Node

_COORDINATOR_NOT_AVAILABLE = 15
_NOT_COORDINATOR = 16
_PASSING = (
    DiskFull,
    NotEnoughReplicas,
    NotReady,
    PartitionOffline,
    ReplicationUnknown,
    StorageError,
    TimedOut,
)


class Endpoint(NamedTuple):
    number: int
    host: str
    port: int
    rack: str | None


@dataclass(slots=True)
class Context:
    """`host` and `port` are what clients are told to connect to; they are known once the listener is bound."""

    node: Node
    host: str = ""
    port: int = 0

    @property
    def cluster_id(self) -> str:
        return self.node.directory.cluster_id

    @property
    def broker_id(self) -> int:
        return self.node.directory.number

    def brokers(self) -> list[Endpoint]:
        """All that clients may connect to; a node alone is known by what its listener is bound to."""
        return self._endpoints(self.node.directory.brokers())

    def members(self) -> list[Endpoint]:
        """Those that nobody hears of for now, too. librdkafka drops its handle of a broker that Metadata leaves out, and a call that
        waits for that very broker, `send_offsets_to_transaction` for one, then waits for ever; a broker that is down it just
        tries again."""
        return self._endpoints(self.node.directory.members())

    def _endpoints(self, brokers: Sequence[Broker]) -> list[Endpoint]:
        if self.node.directory.is_solo:
            return [Endpoint(self.broker_id, self.host, self.port, None)]
        return [Endpoint(one.number, *split_address(one.kafka), one.rack or None) for one in brokers]

    def broker(self, number: int) -> Endpoint | None:
        return next((one for one in self.brokers() if one.number == number), None)

    def topic_id(self, topic: str) -> bytes:
        return topic_id(self.node.topics.id_of(topic))

    def topic_name(self, id: bytes) -> str:
        """Of a topic that a client names by its id."""
        number = topic_number(id)
        name = None if number is None else self.node.topics.name_of(number)
        if name is None:
            raise UnknownTopicId(f"no topic has the id {UUID(bytes=id)}", id=str(UUID(bytes=id)))
        return name


def code_of(error: GoQueueError | None) -> int:
    return 0 if error is None else WIRE[error.code].kafka


def coordinator_code(error: GoQueueError | None) -> int:
    """Of a group or a transaction: a member that cannot be served now must try again, and clients take only this code for
    that; others would end them. Who leads the log of a coordinator no longer is none."""
    if isinstance(error, NotLeader):
        return _NOT_COORDINATOR
    return _COORDINATOR_NOT_AVAILABLE if isinstance(error, _PASSING) else code_of(error)
