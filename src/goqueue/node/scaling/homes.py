"""Where the records of topics with `scaling=keyed` belong, as the catalogue has it at this moment.

Whoever appends asks here and appends without waiting in between. So when a leader has applied a change of the catalogue, no
record that was judged by what was before can still come into its log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from goqueue.core.cluster.scaling import Scaling
from goqueue.log.batch import BatchHeader, decode_rows, open_payload
from goqueue.log.homes import are_home
from goqueue.log.records import Row
from goqueue.model.partitioner import Partitioner, hash_key
from goqueue.model.settings import TimestampType
from goqueue.node.metadata import Metadata
from goqueue.node.partition import Partition
from goqueue.node.topic_table import TopicTable

Payload = tuple[bytes | memoryview, int]  # the records when they are not compressed, and where they begin


class Opened(NamedTuple):
    """A batch whose records can be looked at."""

    header: BatchHeader
    batch: bytes
    payload: Payload | None = None  # if somebody has it already

    @property
    def opened(self) -> Payload:
        return open_payload(self.batch, self.header) if self.payload is None else self.payload

    def rows(self) -> list[Row]:
        return decode_rows(self.batch, self.header)


class Homes:
    def __init__(self, metadata: Metadata, table: TopicTable) -> None:
        self._metadata = metadata
        self._table = table

    @property
    def applied_index(self) -> int:
        """How much of what was decided this node goes by."""
        return self._metadata.quorum.applied_index

    async def until_applied(self, index: int) -> None:
        await self._metadata.quorum.until_applied(index)

    def scaling(self, topic: str) -> Scaling | None:
        """None where keys are not kept in their partitions."""
        return self._metadata.catalog.scaling(topic)

    def leader(self, topic: str, index: int) -> int | None:
        """The number of the node that leads the partition, or of none."""
        state = self._metadata.catalog.partitions.find(topic, index)
        return None if state is None else state.leader

    def led(self, topic: str, index: int) -> Partition:
        """One that this node leads; NotLeader where another does."""
        partition = self._table.get(topic).partition(index)
        partition.check_leads()
        return partition

    def partitioner(self, topic: str) -> Partitioner:
        return self._table.get(topic).settings.partitioner

    def newest_of(self, partition: Partition, producer_id: int) -> int | None:
        """When the newest record was made that the producer has in the partition, as it says itself; None where that is not known."""
        is_stamped = (
            self._table.get(partition.topic).settings.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        )
        return None if is_stamped else partition.newest_timestamp(producer_id)

    def has_all(self, partition: Partition, scaling: Scaling, opened: Opened) -> bool:
        """Whether all records of the batch belong here."""
        index, header = partition.index, opened.header
        modulus = scaling.modulus(index)
        if modulus is None:
            return False
        if modulus == 1:
            return True
        return are_home(
            opened.opened,
            header.record_count,
            header.last_offset_delta,
            self.partitioner(partition.topic),
            modulus,
            index,
        )

    def spread(
        self, topic: str, scaling: Scaling, index: int, rows: Iterable[Row]
    ) -> dict[int | None, list[Row]]:
        """The records that came to a partition, by where they belong; None is where that is not decided."""
        partitioner, homes = self.partitioner(topic), dict[int | None, list[Row]]()
        for row in rows:
            key = row[2]
            home = scaling.home(index, None if key is None else hash_key(partitioner, key))
            homes.setdefault(home, []).append(row)
        return homes

    def has_newcomers(self, topic: str, scaling: Scaling, index: int, rows: Iterable[Row]) -> bool:
        """Whether a record that belongs here would have belonged elsewhere before the last change."""
        partitioner = self.partitioner(topic)
        return any(
            row[2] is not None and scaling.has_moved(index, hash_key(partitioner, row[2])) for row in rows
        )

    def is_newcomer(self, partition: Partition, row: Row) -> bool:
        """Whether a record that belongs to a partition which stays belonged to one that goes before the topic began to shrink."""
        scaling = self.scaling(partition.topic)
        if scaling is None or not scaling.is_shrinking:
            return False
        return self.has_newcomers(partition.topic, scaling, partition.index, [row])
