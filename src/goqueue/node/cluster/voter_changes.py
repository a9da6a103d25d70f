"""A voter is added or removed, on the controller. One that is to remove itself hands over first, so that nobody leads whom nobody counts:
the next controller does the rest.

From the moment at which it is in the log a change needs a majority of the voters after it, and where they are dead it stands in
the way of everything else until they are back. So those count as alive who answer after the change was asked for: a controller
that is new, or a voter that has just died, would be mistaken otherwise.
"""

from __future__ import annotations

import asyncio

from goqueue.core.catalog import Catalog
from goqueue.core.cluster.commands import AddVoter, VoterCommand
from goqueue.core.cluster.levels import VOTERS_LEVEL
from goqueue.core.cluster.voter_rules import Electorate, with_added, with_removed
from goqueue.model.cluster_errors import NotController, VotersRefused
from goqueue.node.cluster.quorum import Quorum
from goqueue.node.monotonic import monotonic_ms


async def change_voters(quorum: Quorum, catalog: Catalog, command: VoterCommand, asked_ms: int) -> int:
    """The index of the change, once it is committed. NotController: another has to do it now. VotersRefused with `dead`: too few
    have answered since `asked_ms`."""
    catalog.require_level(VOTERS_LEVEL, "a change of the voters")
    raft = quorum.raft
    now_ms = monotonic_ms()
    electorate = Electorate(quorum.name, raft.voters, raft.standings(now_ms), now_ms - asked_ms)
    nodes = [node.name for node in catalog.nodes()]
    if isinstance(command, AddVoter):
        return await quorum.change_voters(with_added(electorate, command.name, nodes))
    after = with_removed(electorate, command.name, nodes)
    if command.name == quorum.name:
        await _hand_over(quorum)
    return await quorum.change_voters(after)


async def _hand_over(quorum: Quorum) -> None:
    try:
        async with asyncio.timeout(2 * quorum.silent_ms_max / 1_000):
            await quorum.hand_over()
    except TimeoutError:
        raise VotersRefused(
            f"node {quorum.name!r} is the controller and nobody takes over from it; try again later",
            node=quorum.name,
        ) from None
    raise NotController(quorum.leader)
