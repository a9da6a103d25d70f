"""What the leader of a ledger says of moves to a partition that goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.tenures import TOPIC, Stage, on_stage

from goqueue.core.lease.events import Target
from goqueue.model.cluster_errors import NotLeader
from goqueue.model.errors import NotReady
from goqueue.node.dead_letters.open_moves import MovesHere

GOES = Target("orders.dlq", 1)
SUCCESSOR = 0


class Decided:
    """The catalogue, as far as it is asked here."""

    def __init__(self) -> None:
        self.epoch = 1
        self.has_heard = True

    def companions(self, _: str) -> frozenset[str]:
        return frozenset({"ledger"})

    def partition(self, *_: object) -> SimpleNamespace:
        return SimpleNamespace(leader_epoch=self.epoch)

    def home_of(self, _: str, index: int) -> int:
        return SUCCESSOR if self.has_heard else index


def play(scene: Callable[[Stage, Decided, MovesHere], Coroutine[Any, Any, None]]) -> None:
    async def main(stage: Stage) -> None:
        decided = Decided()
        moves = MovesHere(decided, stage.table, stage.ledgers, decided.home_of)  # type: ignore[arg-type]  # all that is asked of it
        await scene(stage, decided, moves)

    on_stage(main, dead_letters=GOES)


async def reject(stage: Stage) -> None:
    await stage.publish(b"poison")
    (held,) = await stage.poll()
    await stage.queue.reject([held.receipt], reason="bad")


def test_what_is_decided_and_not_carried_out_is_on_its_way() -> None:
    async def scene(stage: Stage, decided: Decided, moves: MovesHere) -> None:
        await stage.lead()
        assert not await moves.are_open(TOPIC, 0, GOES)
        await reject(stage)
        assert await moves.are_open(TOPIC, 0, GOES)
        assert not await moves.are_open(TOPIC, 0, GOES._replace(partition=2))

    play(scene)


def test_nothing_is_said_before_it_is_known_that_the_partition_goes() -> None:
    async def scene(stage: Stage, decided: Decided, moves: MovesHere) -> None:
        await stage.lead()
        decided.has_heard = False
        with pytest.raises(NotReady, match=r"orders\.dlq-1"):
            await moves.are_open(TOPIC, 0, GOES)

    play(scene)


def test_nothing_is_said_where_another_leads_by_what_is_decided() -> None:
    async def scene(stage: Stage, decided: Decided, moves: MovesHere) -> None:
        await stage.lead()
        decided.epoch += 1
        with pytest.raises(NotLeader):
            await moves.are_open(TOPIC, 0, GOES)

    play(scene)


def test_what_is_not_on_enough_replicas_is_not_waited_for_long() -> None:
    async def scene(stage: Stage, decided: Decided, moves: MovesHere) -> None:
        await stage.lead()
        await stage.publish(b"first", b"second")
        first, _ = await stage.poll()
        leadership = stage.leadership
        assert leadership is not None
        leadership.is_prompt = False
        acking = asyncio.create_task(stage.queue.ack([first.receipt]))
        await asyncio.sleep(0.1)
        started_at = stage.loop.time()
        with pytest.raises(NotReady, match="not on enough replicas"):
            await moves.are_open(TOPIC, 0, GOES)
        assert stage.loop.time() - started_at < 5
        leadership.take()
        await acking
        assert not await moves.are_open(TOPIC, 0, GOES)

    play(scene)
