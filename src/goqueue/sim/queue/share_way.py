"""Members of a share group: they get whole batches and spans of offsets, and name records by their offsets.

The broker does not say when such a lease began, so the history has the earliest end it may have, and the latest beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.core.group.consumer_events import JOIN_EPOCH
from goqueue.core.group.share_events import ShareHeartbeat
from goqueue.log.batch import decode_batch, read_header
from goqueue.log.lane_scan import lane_of_headers
from goqueue.model.errors import FencedMemberEpoch, GoQueueError, LeaseSuperseded, UnknownMember
from goqueue.model.record import StoredRecord
from goqueue.node.node import Node
from goqueue.node.queue.ledgers import Place as Part
from goqueue.node.queue.share_requests import Acquired, Shared, ShareFetch, Verdict, Verdicts
from goqueue.sim.http import NoAnswer
from goqueue.sim.queue.history import Action, Delivery, LostPoll, Place, Told
from goqueue.sim.queue.world import World

VISIBILITY_MS = 3_000  # of the topic: a share consumer has no word in it
_BYTES_MAX = 1024 * 1024
_VERDICTS = {
    Action.ACK: Verdict.ACCEPT,
    Action.NACK: Verdict.RELEASE,
    Action.REJECT: Verdict.REJECT,
    Action.EXTEND: Verdict.RENEW,
}


class ShareWay:
    missed_s = float("inf")  # its session lasts as long as the broker

    def __init__(self, world: World, group: str, parts: Sequence[Part]) -> None:
        self._world = world
        self._group = group
        self._parts = parts
        self._epochs: dict[str, int] = {}
        self._newest: dict[tuple[str, Place], Delivery] = {}  # by member: it holds by name, not by receipt

    async def poll(self, member: str, limit: int, wait_ms: int) -> list[Delivery]:
        want = ShareFetch(self._group, member, self._parts, {}, limit, _BYTES_MAX, wait_ms)

        async def fetch(node: Node) -> dict[Part, Shared]:
            await self._beat(node, member)
            await node.share.attach(self._group, member)  # a session ends with the broker's life
            return await node.share.fetch(want)

        sent_s = self._world.loop.time()
        try:
            shared = await self._world.call(fetch)
        except (NoAnswer, GoQueueError):
            self._forget(member)
            raise
        deliveries: list[Delivery] = []
        for part, one in shared.items():
            if one.error is not None:
                self._forget(member)
                self._world.history.lost_polls.append(LostPoll(self._group, sent_s))
            records = _records(one)
            for span in one.acquired:
                for offset in range(span.first, span.last + 1):
                    deliveries.append(self._delivery(member, part, records[offset], span, sent_s))
        for delivery in deliveries:
            self._newest[member, delivery.place] = delivery
        return deliveries

    def _forget(self, member: str) -> None:
        """An answer is lost, and with it perhaps a newer delivery of what it holds: what it says would be of that one."""
        for key in [key for key in self._newest if key[0] == member]:
            del self._newest[key]

    async def _beat(self, node: Node, member: str) -> None:
        topics = tuple(sorted({topic for topic, _ in self._parts}))
        for epoch in (self._epochs.get(member, JOIN_EPOCH), JOIN_EPOCH):
            try:
                reply = await node.groups.share_heartbeat(
                    ShareHeartbeat(
                        self._group,
                        member,
                        epoch,
                        client_id=member,
                        client_host="/sim",
                        subscribed_topics=topics,
                    )
                )
            except (UnknownMember, FencedMemberEpoch):
                continue
            self._epochs[member] = reply.member_epoch
            return

    def _delivery(
        self, member: str, part: Part, record: StoredRecord, span: Acquired, sent_s: float
    ) -> Delivery:
        clock, now_s = self._world.clock, self._world.loop.time()
        return Delivery(
            self._group,
            "",
            member,
            Place(*part, record.offset),
            (record.value or b"").decode(),
            None if record.key is None else record.key.decode(),
            lane_of_headers(record.headers),
            span.deliveries,
            clock.latest_ms(sent_s, now_s),
            clock.earliest_ms(sent_s, now_s) + VISIBILITY_MS,
            sent_s,
            now_s,
            "",
        )

    async def tell(
        self, member: str, action: Action, deliveries: list[Delivery]
    ) -> list[Told | GoQueueError]:
        said: dict[Part, list[Verdicts]] = {}
        for one in sorted(deliveries, key=lambda one: one.place):
            if self._newest.get((member, one.place)) is one:
                place = one.place
                verdict = Verdicts(place.offset, place.offset, [_VERDICTS[action]])
                said.setdefault((place.topic, place.partition), []).append(verdict)
        sent_s = self._world.loop.time()
        answers: dict[Part, Shared] = {}
        if said:
            answers = await self._world.call(lambda node: node.share.acknowledge(self._group, member, said))
        deadline_ms = self._world.clock.earliest_ms(sent_s, self._world.loop.time()) + VISIBILITY_MS
        told: list[Told | GoQueueError] = []
        for one in deliveries:
            if self._newest.get((member, one.place)) is not one:
                told.append(LeaseSuperseded(self._group, one.place.offset, one.count, one.count + 1))
                continue
            error = answers[one.place.topic, one.place.partition].verdict_error
            told.append(error or Told(deadline_ms=deadline_ms if action is Action.EXTEND else None))
        return told

    async def leave(self, member: str) -> None:
        await self._world.call(lambda node: node.share.let_go(self._group, member))


def _records(one: Shared) -> dict[int, StoredRecord]:
    return {
        record.offset: record for chunk in one.chunks for record in decode_batch(chunk, read_header(chunk))
    }
