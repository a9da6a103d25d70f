"""A group's coordinator asks the leaders of all ledgers, and the next ones where leadership has moved."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from msgspec import structs
from tests.support.tenures import OTHER, TOPIC, Stage, on_stage

from goqueue.core.cluster.partitions import NO_LEADER
from goqueue.core.lease.events import Target
from goqueue.model.cluster_errors import NotLeader, PeerUnreachable
from goqueue.model.errors import CoordinatorNotAvailable
from goqueue.node.queue.led_ledgers import AllLedgers, LedLedgers
from goqueue.node.queue.ports import LedgerAction, LedgerAnswer, LedgerWant


class Others:
    """Node 2, and what the nodes are called."""

    number = 1

    def __init__(self) -> None:
        self.forgotten: list[tuple[str, str, int]] = []
        self.moving: set[tuple[str, int]] = set()
        self.errors: list[type[NotLeader] | type[PeerUnreachable]] = []

    def name_of(self, number: int) -> str:
        return "" if number == NO_LEADER else f"node-{number}"

    async def ask(
        self, node: str, group_id: str, action: LedgerAction, wants: Sequence[LedgerWant]
    ) -> list[LedgerAnswer]:
        if self.errors:
            if self.errors.pop(0) is PeerUnreachable:
                raise PeerUnreachable("no answer")
            return [
                LedgerAnswer(one.topic, one.partition, NotLeader(one.topic, one.partition)) for one in wants
            ]
        if action is LedgerAction.FORGET:
            self.forgotten += [(node, one.topic, one.partition) for one in wants]
        return [LedgerAnswer(one.topic, one.partition, start=5) for one in wants]

    async def are_open(self, topic: str, index: int, target: Target) -> bool:
        return (topic, index) in self.moving


def play(scene: Callable[[Stage, Others, AllLedgers], Coroutine[Any, Any, None]]) -> None:
    async def main(stage: Stage) -> None:
        others = Others()
        here = LedLedgers(stage.queue, stage.ledgers, stage.table, others)
        every = AllLedgers(here, stage.table, others, lambda _: {"ledger"}, others)  # type: ignore[arg-type]  # all that is asked of them
        await scene(stage, others, every)

    on_stage(main)


def led_by(stage: Stage, number: int) -> None:
    topic = stage.table.get(TOPIC)
    topic.states = (structs.replace(topic.states[0], leader=number),)


def test_a_deleted_group_is_forgotten_where_its_ledger_is_led() -> None:
    async def scene(stage: Stage, others: Others, every: AllLedgers) -> None:
        led_by(stage, OTHER)
        others.errors = [PeerUnreachable, NotLeader]
        await every.forget("workers")
        assert others.forgotten == [("node-2", TOPIC, 0)]

    play(scene)


def test_a_group_is_forgotten_here_where_this_node_leads() -> None:
    async def scene(stage: Stage, others: Others, every: AllLedgers) -> None:
        await stage.lead()
        await stage.publish(b"a")
        await stage.poll()
        (answer,) = await every.ask("workers", LedgerAction.DESCRIBE, every.wants())
        assert (answer.start, answer.lag) == (0, 1)
        await every.check_forget("workers")
        await every.forget("workers")
        (answer,) = await every.ask("workers", LedgerAction.DESCRIBE, every.wants())
        assert answer.start is None
        assert others.forgotten == []

    play(scene)


def test_a_group_is_not_forgotten_while_a_ledger_has_no_leader() -> None:
    async def scene(stage: Stage, others: Others, every: AllLedgers) -> None:
        led_by(stage, NO_LEADER)
        with pytest.raises(CoordinatorNotAvailable):
            await every.forget("workers")

    play(scene)
