"""Before a partition goes, nothing may be on its way to it: no dead letters, and nothing that is sent back.

A node that knows that it goes decides on the partition that takes its place. So once the leader of every ledger knows that, and has carried out
what was decided before, nothing comes to it any more.
"""

from __future__ import annotations

import asyncio
from typing import Final

from goqueue.core.catalog import Catalog
from goqueue.core.lease.events import Target
from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import NotReady
from goqueue.model.names import is_internal
from goqueue.node.companions import Companion
from goqueue.node.dead_letters.topics import HomeOf
from goqueue.node.queue.led_ledgers import LedgersAsked
from goqueue.node.queue.ledger import OwnedLedger
from goqueue.node.queue.ledgers import Ledgers
from goqueue.node.queue.ports import LedgerAction, LedgerWant
from goqueue.node.topic_table import TopicTable

_NO_GROUP: Final = ""
_ANSWER_S_MAX: Final = 2.0


class MovesHere:
    """Of the ledgers that this node leads."""

    def __init__(self, catalog: Catalog, table: TopicTable, ledgers: Ledgers, home_of: HomeOf) -> None:
        self._catalog = catalog
        self._table = table
        self._ledgers = ledgers
        self._home_of = home_of

    async def are_open(self, topic: str, index: int, target: Target) -> bool:
        """Whether something of the partition is on its way to `target`, or may be again. An error says that this is not known; it comes in time,
        for other questions of the same node are answered after this one."""
        try:
            async with asyncio.timeout(_ANSWER_S_MAX):
                return await self._are_open(topic, index, target)
        except TimeoutError:
            raise NotReady(
                f"what the ledger of {topic}-{index} has moved is not on enough replicas within {_ANSWER_S_MAX:g} s"
            ) from None

    async def _are_open(self, topic: str, index: int, target: Target) -> bool:
        ledger = await self._ledger(topic, index)
        if self._home_of(*target) == target.partition:
            raise NotReady(f"this node has not heard yet that {target.topic}-{target.partition} goes")
        if ledger is None:
            self._check_leads(topic, index)
            return False
        if _is_open(ledger, target):
            return True
        await ledger.settled()  # that it has arrived: the next leader would move it again
        ledger.tenure.check()
        self._check_leads(topic, index)
        return _is_open(ledger, target)

    async def _ledger(self, topic: str, index: int) -> OwnedLedger | None:
        if Companion.LEDGER.kind in self._catalog.companions(topic):
            return await self._ledgers.open(topic, index)
        return self._ledgers.known(topic, index)

    def _check_leads(self, topic: str, index: int) -> None:
        """Also as the catalogue has it, which this node follows a little later: else the leader may be another one, which has not heard."""
        leadership = self._table.get(topic).partition(index).leadership
        if leadership is not None and leadership.epoch != self._catalog.partition(topic, index).leader_epoch:
            raise NotLeader(topic, index)


class OpenMoves:
    """Of all ledgers, wherever they are led."""

    def __init__(self, catalog: Catalog, asked: LedgersAsked, *, is_alone: bool) -> None:
        """Where a node is alone, the catalogue has no companions."""
        self._catalog = catalog
        self._asked = asked
        self._is_alone = is_alone

    async def are_there(self, target: Target) -> bool:
        """An error says that this is not known."""
        answers = await self._asked.ask(_NO_GROUP, LedgerAction.MOVES, self._wants(target))
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        return any(answer.is_moving for answer in answers)

    def _wants(self, target: Target) -> list[LedgerWant]:
        return [
            LedgerWant(facts.name, index, target=target)
            for facts in self._catalog.topics()
            if self._may_have_ledgers(facts.name)
            for index in range(facts.partition_count)
        ]

    def _may_have_ledgers(self, topic: str) -> bool:
        if self._is_alone:
            return not is_internal(topic)
        return Companion.LEDGER.kind in self._catalog.companions(topic)


def _is_open(ledger: OwnedLedger, target: Target) -> bool:
    return any(move.target == target for move in ledger.state.moves.values())
