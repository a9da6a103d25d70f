"""Members of groups as clients see themselves: of classic groups, whose leader assigns, and of KIP-848's, where the broker
does. Both believe that they own what they were given until they hear otherwise or let go of it."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from goqueue.sim.kafka.client import KafkaClient, requests
from goqueue.sim.kafka.history import Beat, Hold, KafkaHistory, Part, Told, now_s
from goqueue.sim.kafka.world import RETRIABLE, World, pause

SESSION_S = 3.0  # of members of either kind; see `goqueue.sim.broker.CONFIG`
_REBALANCE_MS = 3_000
_HEARTBEAT_S = 0.7
_PROTOCOL = "range"
_MEMBER_ID_REQUIRED, _UNKNOWN_MEMBER = 79, 25
_REJOIN = frozenset({22, 25, 27, 82, 110})  # the group has moved on without this member
JOIN_EPOCH, LEAVE_EPOCH = 0, -1


class Member(Protocol):
    """`generation` is the member's epoch in KIP-848. `owned` changes only in `poll`."""

    @property
    def member_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def owned(self) -> tuple[Part, ...]: ...
    @property
    def is_classic(self) -> bool: ...

    async def poll(self) -> None:
        """Join, or stay alive, whichever is due. Raises `NoAnswer`."""

    async def leave(self) -> None: ...
    def vanish(self) -> None:
        """Be gone without a word."""


class Ownership:
    """What a member believes to own, told to the history."""

    def __init__(self, history: KafkaHistory, group: str, *, is_classic: bool) -> None:
        self.parts: tuple[Part, ...] = ()
        self._history = history
        self._group = group
        self._is_classic = is_classic
        self._holds: dict[Part, Hold] = {}

    def become(self, parts: tuple[Part, ...], member_id: str, generation: int) -> None:
        for part in [part for part in self._holds if part not in parts]:
            self._holds.pop(part).end_s = now_s()
        for part in parts:
            if part not in self._holds:
                hold = Hold(self._group, part, member_id, generation, now_s(), self._is_classic)
                self._holds[part] = hold
                self._history.holds.append(hold)
        self.parts = parts


class Sharing(Protocol):
    """How the leader of a classic group tells the others what is theirs. The broker need not understand it."""

    async def partition_count(self) -> int: ...
    def encode(self, indexes: list[int]) -> bytes: ...
    def decode(self, assignment: bytes) -> list[int]: ...


class PlainSharing:
    """Of a topic that does not change."""

    def __init__(self, partition_count: int) -> None:
        self._partition_count = partition_count

    async def partition_count(self) -> int:
        return self._partition_count

    def encode(self, indexes: list[int]) -> bytes:
        return msgspec.json.encode(indexes)

    def decode(self, assignment: bytes) -> list[int]:
        return msgspec.json.decode(assignment, type=list[int]) if assignment else []


class ClassicMember:
    is_classic = True

    def __init__(self, world: World, client: KafkaClient, group: str, topic: str, sharing: Sharing) -> None:
        self.member_id = ""
        self.generation = -1
        self._history = world.history
        self._rng = world.child()
        self._client = client
        self._group = group
        self._topic = topic
        self._sharing = sharing
        self._ownership = Ownership(world.history, group, is_classic=True)
        self._beat_s = 0.0

    @property
    def owned(self) -> tuple[Part, ...]:
        return self._ownership.parts

    async def poll(self) -> None:
        if self.generation < 0:
            await self._join()
        elif now_s() >= self._beat_s:
            await self._beat()

    async def leave(self) -> None:
        self.vanish()
        kinds = requests("leave_group")
        await self._client.call(
            "leave_group", 5, group_id=self._group, members=[kinds.MemberIdentity(member_id=self.member_id)]
        )

    def vanish(self) -> None:
        self._ownership.become((), self.member_id, self.generation)

    def rejoin(self) -> None:
        """The next poll joins anew."""
        self.generation = -1

    async def _join(self) -> None:
        self.vanish()  # eagerly: who joins lets go of everything
        kinds = requests("join_group")
        protocol = kinds.JoinGroupRequestProtocol(name=_PROTOCOL, metadata=_subscription(self._topic))
        answer = await self._client.call(
            "join_group",
            9,
            group_id=self._group,
            session_timeout_ms=int(SESSION_S * 1_000),
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        if answer.error_code == _MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif answer.error_code:
            await self._refused("JoinGroup", answer.error_code)
        else:
            self.member_id = answer.member_id
            await self._sync(answer)

    async def _sync(self, joined: Any) -> None:
        is_leader = joined.leader == self.member_id
        shares = self._shares(joined, await self._sharing.partition_count()) if is_leader else {}
        kinds = requests("sync_group")
        answer = await self._client.call(
            "sync_group",
            5,
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=[
                kinds.SyncGroupRequestAssignment(member_id=member_id, assignment=self._sharing.encode(share))
                for member_id, share in shares.items()
            ],
        )
        if answer.error_code:
            await self._refused("SyncGroup", answer.error_code)
            return
        indexes = self._sharing.decode(answer.assignment)
        self.generation = joined.generation_id
        self._beat_s = now_s() + _HEARTBEAT_S
        parts = tuple(Part(self._topic, index) for index in indexes)
        self._ownership.become(parts, self.member_id, self.generation)

    def _shares(self, joined: Any, count: int) -> dict[str, list[int]]:
        """Range: neighbouring partitions, members in the order of their ids."""
        ids = sorted(one.member_id for one in joined.members)
        return {
            id: list(range(at * count // len(ids), (at + 1) * count // len(ids))) for at, id in enumerate(ids)
        }

    async def _beat(self) -> None:
        sent_s = now_s()
        self._beat_s = sent_s + _HEARTBEAT_S
        answer = await self._client.call(
            "heartbeat", 4, group_id=self._group, generation_id=self.generation, member_id=self.member_id
        )
        if answer.error_code:
            await self._refused("Heartbeat", answer.error_code)
        else:
            self._history.beats.append(Beat(self._group, self.member_id, sent_s))

    async def _refused(self, what: str, code: int) -> None:
        if code in _REJOIN:
            self.vanish()
            self.generation = -1
            if code == _UNKNOWN_MEMBER:
                self.member_id = ""
        elif code not in RETRIABLE:
            self._history.violate(f"{what} of {self.member_id!r} in {self._group} gave {code}")
        await pause(self._rng)


class ConsumerMember:
    is_classic = False

    def __init__(self, world: World, client: KafkaClient, group: str, topic: str, own_id: str) -> None:
        self._rng = world.child()
        self._names_itself = self._rng.random() < 0.5  # as of version 1 of the API
        self.member_id = own_id if self._names_itself else ""
        self.generation = JOIN_EPOCH
        self._history = world.history
        self._client = client
        self._group = group
        self._topic = topic
        self._topic_id = world.topic_ids[topic]
        self._ownership = Ownership(world.history, group, is_classic=False)
        self._beat_s = 0.0
        self._stint = 0
        self._says_all = True  # the next heartbeat says what it owns

    @property
    def owned(self) -> tuple[Part, ...]:
        return self._ownership.parts

    async def poll(self) -> None:
        if now_s() >= self._beat_s or self._says_all:
            await self._beat()

    async def leave(self) -> None:
        self.vanish()
        if self.member_id:
            await self._heartbeat(member_epoch=LEAVE_EPOCH)

    def vanish(self) -> None:
        self._ownership.become((), self.member_id, self.generation)

    async def _beat(self) -> None:
        sent_s = now_s()
        fields: dict[str, object] = {"member_epoch": self.generation}
        if self.generation == JOIN_EPOCH:
            fields |= {"rebalance_timeout_ms": _REBALANCE_MS, "subscribed_topic_names": [self._topic]}
        if self._says_all:
            fields["topic_partitions"] = self._owned_by_topic()
        self._says_all = True  # until there is an answer
        answer = await self._heartbeat(**fields)
        if answer.error_code:
            await self._refused(answer.error_code)
            return
        self._says_all = False
        self._beat_s = sent_s + answer.heartbeat_interval_ms / 1_000
        self.member_id, self.generation = answer.member_id, answer.member_epoch
        self._history.beats.append(Beat(self._group, self.member_id, sent_s))
        if answer.assignment is not None:
            self._take(answer.assignment)
        self._history.told.append(
            Told(self._group, self.member_id, self._stint, self.generation, self.owned, now_s())
        )

    def _take(self, assignment: Any) -> None:
        parts = tuple(
            Part(self._topic, index) for topic in assignment.topic_partitions for index in topic.partitions
        )
        self._says_all = set(parts) != set(self._ownership.parts)  # the broker waits to hear of it
        self._ownership.become(parts, self.member_id, self.generation)

    async def _heartbeat(self, **fields: Any) -> Any:
        version = 1 if self._names_itself else 0
        return await self._client.call(
            "consumer_group_heartbeat", version, group_id=self._group, member_id=self.member_id, **fields
        )

    def _owned_by_topic(self) -> list[Any]:
        if not self._ownership.parts:
            return []
        kinds = requests("consumer_group_heartbeat")
        indexes = [part.partition for part in self._ownership.parts]
        return [kinds.TopicPartitions(topic_id=self._topic_id, partitions=indexes)]

    async def _refused(self, code: int) -> None:
        if code in _REJOIN:
            self.vanish()
            self.generation = JOIN_EPOCH
            self._stint += 1
        elif code not in RETRIABLE:
            self._history.violate(
                f"ConsumerGroupHeartbeat of {self.member_id!r} in {self._group} gave {code}"
            )
        await pause(self._rng)


def _subscription(topic: str) -> bytes:
    """Kafka's ConsumerProtocolSubscription, version 0: one topic, no user data."""
    name = topic.encode()
    return b"\0\0" + b"\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
