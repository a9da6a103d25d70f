"""Members of groups that read a topic whose partitions come and go: as Kafka's clients, they look at its metadata from time to time, and
the leader of a classic group has it rebalance when the count is another."""

from __future__ import annotations

import struct

from goqueue.core.group.protocol_assignment import assigned_partitions
from goqueue.sim.cluster.keyed_history import KeyedHistory, Place
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.batches import Records
from goqueue.sim.kafka.client import KafkaClient, requests
from goqueue.sim.kafka.fetching import Position
from goqueue.sim.kafka.history import Part, now_s
from goqueue.sim.kafka.members import ClassicMember, Member
from goqueue.sim.kafka.workers import Consuming

_LOOK_S = 1.0


class KafkaSharing:
    """As Kafka's own clients write it, so that the coordinator can leave out what the group is not to read yet."""

    def __init__(self, client: KafkaClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self.shared_count = 0  # partitions that were there when they were shared out last

    async def partition_count(self) -> int:
        """To share them out."""
        self.shared_count = await self.count_now()
        return self.shared_count

    async def count_now(self) -> int:
        kinds = requests("metadata")
        answer = await self._client.call(
            "metadata", 12, topics=[kinds.MetadataRequestTopic(name=self._topic)]
        )
        count = len(answer.topics[0].partitions)
        if not count:
            raise NoAnswer(f"nothing is known of {self._topic}")
        return count

    def encode(self, indexes: list[int]) -> bytes:
        name = self._topic.encode()
        return (
            struct.pack(f">hih{len(name)}s", 0, 1, len(name), name)
            + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
            + struct.pack(">i", -1)
        )

    def decode(self, assignment: bytes) -> list[int]:
        return [index for _, index in assigned_partitions(assignment)] if assignment else []


class WatchingMember:
    """A classic member that joins again when its topic has another number of partitions."""

    is_classic = True

    def __init__(self, member: ClassicMember, sharing: KafkaSharing) -> None:
        self._member = member
        self._sharing = sharing
        self._count = 0
        self._looked_s = now_s()

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def generation(self) -> int:
        return self._member.generation

    @property
    def owned(self) -> tuple[Part, ...]:
        return self._member.owned

    async def poll(self) -> None:
        if now_s() - self._looked_s > _LOOK_S:
            count = await self._sharing.count_now()
            self._looked_s = now_s()
            known = {self._count, self._sharing.shared_count} - {0}
            if known - {count}:
                self._member.rejoin()
            self._count = self._sharing.shared_count = count
        await self._member.poll()

    async def leave(self) -> None:
        await self._member.leave()

    def vanish(self) -> None:
        self._member.vanish()


class KeyedWork:
    """Process, which is noted in the order in which it is done, then commit."""

    def __init__(self, history: KeyedHistory, group: str, consuming: Consuming) -> None:
        self._history = history
        self._group = group
        self._consuming = consuming

    def reset(self) -> None:
        self._consuming.reset()

    async def do(self, member: Member, found: dict[Part, Records], after: dict[Part, Position]) -> bool:
        for part, records in found.items():
            for offset, value in records.values.items():
                self._history.process(self._group, value, Place(part, offset))
        return await self._consuming.do(member, found, after)
