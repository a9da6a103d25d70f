"""Ledgers that other nodes lead, and settings of groups that other nodes coordinate."""

from __future__ import annotations

from collections.abc import Sequence

from goqueue.node.queue.exchange import (
    LEDGERS,
    LEDGERS_TOLD,
    LEFT,
    LEFT_TOLD,
    SETTINGS,
    SETTINGS_TOLD,
    LedgersCall,
    LedgerTold,
    LeftCall,
    SettingsCall,
)
from goqueue.node.queue.ports import LedgerAction, LedgerAnswer, LedgerWant
from goqueue.peer.asking import Asking
from goqueue.peer.refusals import error_told


class RemoteLedgers:
    """What `goqueue.node.queue.ports.RemoteLedgers` promises."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    async def group_settings(self, node: str, group_id: str) -> dict[str, str]:
        return (await self._asking.ask(node, SETTINGS, SettingsCall(group_id), SETTINGS_TOLD)).settings

    async def member_left(self, node: str, group_id: str, member_id: str) -> None:
        await self._asking.ask(node, LEFT, LeftCall(group_id, member_id), LEFT_TOLD)

    async def ask(
        self, node: str, group_id: str, action: LedgerAction, wants: Sequence[LedgerWant]
    ) -> list[LedgerAnswer]:
        told = await self._asking.ask(node, LEDGERS, LedgersCall(group_id, action, wants), LEDGERS_TOLD)
        return [_answer(want, one) for want, one in zip(wants, told.answers, strict=True)]


def _answer(want: LedgerWant, told: LedgerTold) -> LedgerAnswer:
    error = None if told.error is None else error_told(told.error, told.sentence, {})
    return LedgerAnswer(
        want.topic, want.partition, error, told.start, told.leader_epoch, told.lag, told.is_moving
    )
