"""How the groups of all nodes stand to the gates of a topic."""

from __future__ import annotations

import asyncio

from goqueue.core.cluster.scaling import Scaling
from goqueue.model.errors import GoQueueError
from goqueue.node.forwarding import Forwarding
from goqueue.node.groups.standing import Standings, StandingsCall
from goqueue.node.groups.standings import StandingsHere
from goqueue.node.other_nodes import OtherNodes

Told = Standings | GoQueueError


class StandingsSeen:
    def __init__(
        self, here: StandingsHere, name: str, forwarding: Forwarding | None, nodes: OtherNodes | None
    ) -> None:
        """`name` is this node's."""
        self._here = here
        self._name = name
        self._forwarding = forwarding
        self._nodes = nodes

    async def of(self, topic: str, scaling: Scaling) -> dict[str, Told]:
        """By node, of all that are there: what it says, or why it does not."""
        call = StandingsCall(topic, scaling)
        names = [self._name, *([] if self._forwarding is None else self._forwarding.others())]
        found = await asyncio.gather(*(self._ask(name, call) for name in names))
        return dict(zip(names, found, strict=True))

    async def _ask(self, name: str, call: StandingsCall) -> Told:
        try:
            if name == self._name or self._nodes is None:
                return await self._here.of(call)
            return await self._nodes.standings(name, call)
        except GoQueueError as error:
            return error
