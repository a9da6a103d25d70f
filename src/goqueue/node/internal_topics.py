"""The broker's own topics: made when the first of their keys is written, hidden from clients, compacted."""

from __future__ import annotations

from goqueue.core.cluster.partitions import NO_LEADER
from goqueue.model.errors import CoordinatorNotAvailable, InvariantViolation, NotEnoughReplicas
from goqueue.node.clock import Clock
from goqueue.node.partition import Partition
from goqueue.node.state_log import E, EventCodec, StateLog
from goqueue.node.topic_table import OpenTopic, TopicTable
from goqueue.node.topics import Topics

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
PARTITION_COUNT = 50  # Kafka's; never changes, or keys would move

_OVERRIDES = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * 1024 * 1024),  # small, so that most of a log can be compacted
    "max.message.bytes": str(16 * 1024 * 1024),
    "delete.retention.ms": "60000",  # only a start reads tombstones, and it reads everything; so does a replica that is back
}


class InternalTopics:
    def __init__(self, topics: Topics, table: TopicTable, clock: Clock) -> None:
        self._topics = topics
        self._table = table
        self._clock = clock

    def exists(self, name: str) -> bool:
        return self._table.internal(name) is not None

    async def ensure(self, name: str) -> None:
        if self.exists(name):
            return
        try:
            await self._topics.create_internal(name, partition_count=PARTITION_COUNT, overrides=_OVERRIDES)
        except NotEnoughReplicas as error:
            raise CoordinatorNotAvailable(f"there are no coordinators yet: {error.sentence}") from error

    def leader_of(self, name: str, index: int) -> int:
        """Of a topic that exists; -1 if nobody leads the partition for now."""
        topic = self._table.internal(name)
        return NO_LEADER if topic is None else topic.states[index].leader

    def count(self, name: str) -> int:
        """Of its partitions; 0 if there is no such topic yet."""
        topic = self._table.internal(name)
        return 0 if topic is None else topic.partition_count

    def partition(self, name: str, index: int) -> Partition:
        """Of a topic that exists; raises NotLeader where this node has no replica of it."""
        return self._open(name).partition(index)

    def log(self, name: str, index: int, codec: EventCodec[E]) -> StateLog[E]:
        """For a state that lives as long as this node leads the partition as it does now."""
        partition = self.partition(name, index)
        return StateLog(partition, codec, self._clock, partition.leadership)

    def _open(self, name: str) -> OpenTopic:
        topic = self._table.internal(name)
        if topic is None:
            raise InvariantViolation(f"{name} is used before it was made")
        return topic


def coordinator_partition(key: str, count: int) -> int:
    """Which partition owns a group or a transactional id: Kafka's rule, so that tools that compute it agree."""
    return _java_hash(key) % count


def transaction_partition(transactional_id: str, count: int) -> int:
    """As above; but of an id that begins with something in braces, only that counts: so the members of a joint, whose ids
    begin with its own, are all in one partition with it (ADR 27)."""
    end = transactional_id.find("}")
    is_tagged = transactional_id.startswith("{") and end > 1
    return coordinator_partition(transactional_id[1:end] if is_tagged else transactional_id, count)


def _java_hash(text: str) -> int:
    """String.hashCode over UTF-16 units, without its sign as Kafka's Utils.abs has it."""
    data = text.encode("utf-16-be", "surrogatepass")
    hash = 0
    for at in range(0, len(data), 2):
        hash = (31 * hash + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return hash & 0x7FFFFFFF if hash < 0x80000000 else (0x100000000 - hash) & 0x7FFFFFFF
