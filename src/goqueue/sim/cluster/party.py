"""What every kind of client of the cluster workload has in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from goqueue.sim.cluster.world import World


class Party(Protocol):
    """Clients of one kind. They tell `World.history` what they have seen that must not be."""

    @property
    def topics(self) -> dict[str, int]:
        """Those it needs before it starts, with how many partitions."""

    @property
    def waits_for(self) -> str:
        """What has not come yet; empty where nothing is missing."""

    async def start(self) -> None:
        """The topics are there; things are about to fail."""

    async def finish(self) -> None:
        """Nothing fails any more: back when everything is done. The supervisor has patience for so long."""

    async def end(self) -> None:
        """The run is over, however it went: nothing may go on."""

    def check(self) -> None:
        """Only of a run that could be finished."""


NewParty = Callable[[World], Party]
