"""Where groups are in partitions that any node leads, for whoever tells or moves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from goqueue.node.forwarding import Forwarding, OfPartition
from goqueue.node.other_nodes import FindCall, LedPartition, OtherNodes
from goqueue.node.positions import LATEST, NOWHERE, Positions
from goqueue.node.queue.led_ledgers import AllLedgers, LedgersAsked
from goqueue.node.queue.ledgers import Place
from goqueue.node.queue.ports import LedgerAction, LedgerWant
from goqueue.node.queue.queue import Queue
from goqueue.node.requests import Isolation
from goqueue.node.spread.reading import PartitionsSeen


class GroupPlaces:
    def __init__(
        self,
        queue: Queue,
        ledgers: LedgersAsked,
        seen: PartitionsSeen,
        positions: Positions,
        forwarding: Forwarding | None,
        nodes: OtherNodes | None,
    ) -> None:
        """`ledgers` are those of this node, or of the whole cluster."""
        self._queue = queue
        self._ledgers = ledgers
        self._seen = seen
        self._positions = positions
        self._forwarding = forwarding
        self._nodes = nodes

    async def of_queue(self, group_id: str) -> dict[Place, int]:
        """How far a queue group has come, wherever it has read."""
        if isinstance(self._ledgers, AllLedgers):
            wants = self._ledgers.wants()
        else:
            wants = [LedgerWant(*place) for place in self._queue.places(group_id)]
        found: dict[Place, int] = {}
        for answer in await self._ledgers.ask(group_id, LedgerAction.DESCRIBE, wants):
            if answer.error is not None:
                raise answer.error
            if answer.start is not None:
                found[answer.topic, answer.partition] = answer.start
        return dict(sorted(found.items()))

    async def seek(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        wants = [LedgerWant(*place, offset) for place, offset in offsets.items()]
        for answer in await self._ledgers.ask(group_id, LedgerAction.SEEK, wants):
            if answer.error is not None:
                raise answer.error

    async def partitions(self, topics: Iterable[str]) -> dict[Place, LedPartition]:
        """As their leaders know them."""
        return {
            (topic, one.facts.partition): one
            for topic in sorted(set(topics))
            for one in await self._seen.led(topic)
        }

    async def find(self, place: Place, instant: int) -> int:
        """The first offset at or after an instant, or a named place; the end where nothing is as young as that."""
        if self._forwarding is None or self._nodes is None:
            return await find_here(self._positions, place, instant)
        nodes = self._nodes
        return await self._forwarding.carry(
            OfPartition(*place),
            lambda: find_here(self._positions, place, instant),
            lambda target: nodes.find(target, FindCall(*place, instant)),
            may_repeat=True,
        )


async def find_here(positions: Positions, place: Place, instant: int) -> int:
    found = await positions.find(*place, instant, isolation=Isolation.READ_COMMITTED)
    if found.offset == NOWHERE:
        found = await positions.find(*place, LATEST, isolation=Isolation.READ_COMMITTED)
    return found.offset
