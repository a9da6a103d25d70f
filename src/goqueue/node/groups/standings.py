"""How groups stand to the gates of a topic: those of this node, and of all nodes."""

from __future__ import annotations

from goqueue.core.cluster.scaling import Gate, Scaling
from goqueue.core.group.classic import ClassicGroup
from goqueue.core.group.commands import GroupState
from goqueue.core.group.consumer import ConsumerGroup
from goqueue.core.group.consumer_events import unpack
from goqueue.core.group.gates import needed_first, unpassed
from goqueue.core.group.shard import GroupShard
from goqueue.node.groups.gate_reading import GateReading
from goqueue.node.groups.shards import GroupShards
from goqueue.node.groups.standing import GateLeft, GroupStanding, Standings, StandingsCall
from goqueue.node.metadata import Metadata
from goqueue.node.queue.led_ledgers import LedgersAsked
from goqueue.node.queue.ports import LedgerAction, LedgerWant


class StandingsHere:
    def __init__(
        self, shards: GroupShards, metadata: Metadata, reading: GateReading, ledgers: LedgersAsked
    ) -> None:
        self._shards = shards
        self._metadata = metadata
        self._reading = reading
        self._ledgers = ledgers

    async def of(self, call: StandingsCall) -> Standings:
        """Only groups that read the topic or have committed in it. Raises where a shard cannot be read."""
        own = self._metadata.catalog.scaling(call.topic)
        if own is None or own != call.scaling:
            return Standings(False, [], [])
        led = self._shards.led()
        found: list[GroupStanding] = []
        for index in led:
            shard = self._shards.at(index)
            await shard.ready()
            await shard.settled()
            for group_id in _readers(shard.state, call.topic):
                found.append(await self._stream(shard.state, group_id, call.topic, own))
            for group_id in shard.state.shares.ids():
                found += await self._queue(shard.state, group_id, call.topic, own)
            await shard.settled()  # whatever this was said of is so on the next coordinator, too
        is_current = self._metadata.catalog.scaling(call.topic) == own and self._shards.led() == led
        return Standings(is_current, led, found)

    async def _stream(self, state: GroupShard, group_id: str, topic: str, scaling: Scaling) -> GroupStanding:
        progress = state.gates.progress(group_id, topic)
        for gate in unpassed(scaling, progress):
            await self._reading.look(topic, gate, progress.committed(gate.behind) or 0)
        left = [
            GateLeft(gate.blocked, gate.behind, gate.until, progress.committed(gate.behind))
            for gate in unpassed(scaling, progress)
        ]
        has_members = state.has_members(group_id)
        is_settled = not needed_first(scaling, progress) and (
            not has_members or has_nothing_withheld(state, group_id, self._shards.clock.now_ms())
        )
        return GroupStanding(group_id, has_members, is_settled, left)

    async def _queue(
        self, state: GroupShard, group_id: str, topic: str, scaling: Scaling
    ) -> list[GroupStanding]:
        """A queue group has no order to keep, but what goes away it must have finished, if it has begun to read it."""
        gates = [gate for gate in scaling.gates if gate.behind >= scaling.key_count]
        wants = [LedgerWant(topic, gate.behind) for gate in gates]
        answers = await self._ledgers.ask(group_id, LedgerAction.DESCRIBE, wants) if wants else []
        left: list[GateLeft] = []
        for gate, answer in zip(gates, answers, strict=True):
            if answer.error is not None:
                raise answer.error
            if (
                answer.start is not None
                and answer.start < gate.until
                and not await self._is_out(topic, gate, answer.start)
            ):
                left.append(GateLeft(gate.blocked, gate.behind, gate.until, answer.start))
        has_members = state.has_members(group_id)
        return [GroupStanding(group_id, has_members, True, left)] if left else []

    async def _is_out(self, topic: str, gate: Gate, start: int) -> bool:
        await self._reading.look(topic, gate, start)
        return self._shards.notes.is_read_out(topic, gate, start)


def _readers(state: GroupShard, topic: str) -> list[str]:
    found = set(state.offsets.groups_in(topic))
    found |= {name for name, one in state.classic.items() if one.members and one.is_subscribed(topic)}
    for name in state.consumers.ids():
        one = state.consumers.get(name)
        if one is not None and not one.is_empty and one.is_subscribed(topic):
            found.add(name)
    return sorted(found)


def has_nothing_withheld(state: GroupShard, group_id: str, now_ms: int) -> bool:
    """Whether all its members know what they are not to read."""
    classic, consumer = state.classic.get(group_id), state.consumers.get(group_id)
    if classic is not None and classic.members:
        return _is_classic_settled(state, classic, now_ms)
    return consumer is None or _is_consumer_settled(state, group_id, consumer)


def _is_classic_settled(state: GroupShard, group: ClassicGroup, now_ms: int) -> bool:
    """A cooperative member that had it when it joined gives it up when it has heard of its assignment, and joins again to say so. If that
    takes longer than a session, since this node has the group, it was thrown out meanwhile or has nothing to give up."""
    if group.state is not GroupState.STABLE or group.unsynced:
        return False
    if state.gates.withheld(group.group_id, group.given()):
        return False
    session_ms = max(member.session_timeout_ms for member in group.members.values())
    is_fresh = now_ms - max(group.since_ms, state.resumed_ms) < session_ms
    return not (is_fresh and state.gates.withheld(group.group_id, group.owned_before()))


def _is_consumer_settled(state: GroupShard, group_id: str, group: ConsumerGroup) -> bool:
    held = [
        place
        for member in group.describe().members
        for place in (*unpack(member.assigned), *unpack(member.revoking), *unpack(member.target))
    ]
    return not state.gates.withheld(group_id, held)
