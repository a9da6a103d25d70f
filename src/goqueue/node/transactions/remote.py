"""What a node wants of others in transactions. `goqueue.peer` carries it over in the requests that Kafka's brokers send each
other."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from goqueue.core.txn.events import ProducerEpoch, TopicPartition


class Marker(Struct, frozen=True):
    """How a producer's transaction ended. With `is_epoch_bumped` the epoch is one above that of its records."""

    producer: ProducerEpoch
    is_commit: bool
    is_epoch_bumped: bool
    coordinator_epoch: int  # of two coordinators the one with the newer epoch is right


class RemoteTransactions(Protocol):
    """`target` is a node's name. Each raises what the other node answered, or `PeerUnreachable`."""

    async def write_marker(self, target: str, marker: Marker, part: TopicPartition) -> None:
        """To a partition that the other node leads. Of the internal topic of the groups: to all groups in it."""

    async def add_partition(
        self,
        target: str,
        transactional_id: str,
        producer: ProducerEpoch,
        part: TopicPartition,
        *,
        is_check: bool,
    ) -> None:
        """To the producer's open transaction, at its coordinator; or make sure that it is in it."""

    async def add_group(
        self, target: str, transactional_id: str, producer: ProducerEpoch, group_id: str
    ) -> None: ...
