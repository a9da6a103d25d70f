"""Keeps the controller's idea of who is in sync true: the leader of a partition sees who lags and who has caught up, and
proposes; the controller decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from goqueue.core.cluster.commands import InSyncProposal
from goqueue.model.errors import GoQueueError
from goqueue.node.monotonic import monotonic_ms
from goqueue.node.replication.leadership import Leadership

logger = logging.getLogger(__name__)
_GATHER_S: Final = 0.02  # so that many who catch up at once are one proposal
_AGAIN_S: Final = 0.5  # after a proposal that nobody answered
_PROPOSAL_COUNT_MAX: Final = 5_000

Place = tuple[str, int]
Propose = Callable[
    [list[InSyncProposal]], Awaitable[Collection[Place]]
]  # gives back what is refused for sure
Fenced = Callable[[], Collection[int]]  # nodes that the controller lets into no in-sync set


class InSyncKeeper:
    def __init__(
        self,
        leaderships: Mapping[Place, Leadership],
        heard_ms: Mapping[int, int],
        propose: Propose,
        fenced: Fenced,
        *,
        lag_ms_max: int,
    ) -> None:
        self._heard_ms = heard_ms
        self._leaderships = leaderships
        self._propose = propose
        self._fenced = fenced
        self._lag_ms_max = lag_ms_max
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Somebody has caught up, or is not fenced any more, or the disk has refused a write."""
        self._woken.set()

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._lag_ms_max / 2_000):
                    await self._woken.wait()
                await asyncio.sleep(_GATHER_S)
            except TimeoutError:
                pass
            self._woken.clear()
            proposals = self._proposals(monotonic_ms())
            if proposals:
                try:
                    refused = await self._propose(proposals)
                except GoQueueError as error:  # there is another controller soon, and clients wait
                    logger.info("in-sync sets stay as they are for now error=%r", error.sentence)
                    self._note_silence(proposals)
                    await asyncio.sleep(_AGAIN_S)
                    self._woken.set()
                else:
                    self._note_refusals(proposals, refused)

    def _note_silence(self, proposals: list[InSyncProposal]) -> None:
        for proposal in proposals:
            leadership = self._leaderships.get((proposal.topic, proposal.partition))
            if leadership is not None and leadership.replicas.state.epoch == proposal.epoch:
                leadership.replicas.unanswered()

    def _note_refusals(self, proposals: list[InSyncProposal], refused: Collection[Place]) -> None:
        for proposal in proposals:
            place = proposal.topic, proposal.partition
            leadership = self._leaderships.get(place)
            is_same = leadership is not None and leadership.replicas.state.epoch == proposal.epoch
            if leadership is not None and is_same and place in refused:
                leadership.refused()

    def _proposals(self, now_ms: int) -> list[InSyncProposal]:
        found: list[InSyncProposal] = []
        fenced = self._fenced()
        for (topic, index), leadership in list(self._leaderships.items()):
            replicas = leadership.replicas
            wanted = replicas.proposal(
                now_ms,
                heard_ms=self._heard_ms,
                lag_ms_max=self._lag_ms_max,
                retry_ms=self._lag_ms_max,
                fenced=fenced,
                resigns=leadership.has_failed,
            )
            if wanted is not None:
                state = replicas.state
                is_damaged = leadership.is_damaged
                found.append(
                    InSyncProposal(topic, index, state.leader_epoch, state.epoch, list(wanted), is_damaged)
                )
            if len(found) >= _PROPOSAL_COUNT_MAX:
                break
        return found
