"""Simulated members of queue groups. Most do their work; some are slow, forgetful, undecided, or die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from zlib import crc32

from goqueue.model.errors import GoQueueError
from goqueue.node.node import Node
from goqueue.node.queue.ledgers import Place as Part
from goqueue.node.queue.polling import Poll
from goqueue.node.queue.requests import Delivered, Finished, Prolonged, Returned
from goqueue.sim.http import NoAnswer
from goqueue.sim.queue.history import (
    Action,
    Asked,
    Committed,
    Delivery,
    Fate,
    Left,
    LostPoll,
    Place,
)
from goqueue.sim.queue.world import World

A = TypeVar("A", Finished, Returned, Prolonged)
_FORGET, _STALL = "forget", "stall"


class SimMember:
    def __init__(self, world: World, group: str, name: str, parts: Sequence[Part]) -> None:
        self._world = world
        self._group = group
        self._name = name
        self._parts = parts
        self._rng = world.child()
        self._life = 0
        self._late: list[Delivery] = []  # of which the lease has passed, or nearly

    async def run(self) -> None:
        while not self._world.is_done:
            await asyncio.sleep(self._rng.expovariate(4))
            try:
                await self._work(await self.poll())
                await self._change_life()
            except NoAnswer:
                await asyncio.sleep(self._rng.uniform(0.1, 1.0))
            except GoQueueError:  # the disk is full, or a log has failed
                await asyncio.sleep(self._rng.uniform(0.1, 1.0))

    @property
    def _member(self) -> str:
        return f"{self._name}.{self._life}"

    async def poll(self, limit: int | None = None) -> list[Delivery]:
        visibility_ms = self._rng.choice((1_000, 3_000, 6_000))
        poll = Poll(
            self._group,
            self._member,
            self._parts,
            limit or self._rng.choice((1, 3, 10)),
            self._rng.choice((0, 200, 2_000)),
            visibility_ms,
        )
        sent_s = self._world.loop.time()
        try:
            found = await self._world.call(lambda node: node.queue.poll(poll))
        except (NoAnswer, GoQueueError):  # also a refused one may have leased in another partition
            self._world.history.lost_polls.append(LostPoll(self._group, sent_s))
            raise
        deliveries = [self._delivery(one, visibility_ms, sent_s) for one in found]
        self._world.history.deliveries += deliveries
        return deliveries

    def _delivery(self, one: Delivered, visibility_ms: int, sent_s: float) -> Delivery:
        record = one.record
        return Delivery(
            self._group,
            era_of(one.receipt),
            self._member,
            Place(one.topic, one.partition, record.offset),
            (record.value or b"").decode(),
            None if record.key is None else record.key.decode(),
            one.lane,
            one.deliveries,
            one.deadline_ms - visibility_ms,
            one.deadline_ms,
            sent_s,
            self._world.loop.time(),
            one.receipt,
        )

    # ---------------------------------------------------------------- working

    async def _work(self, deliveries: list[Delivery]) -> None:
        if self._world.is_calm:
            poisoned = [one for one in deliveries if _is_poison(one.value)]
            sound = [one for one in deliveries if not _is_poison(one.value)]
            if sound:
                await self.ack(sound)
            if poisoned:
                await self._nack(poisoned)
            return
        plans: dict[Action | str, list[Delivery]] = {}
        for one in deliveries:
            plan = self._rng.choices(
                (Action.ACK, Action.NACK, Action.REJECT, Action.EXTEND, _STALL, _FORGET),
                (50, 20, 5, 12, 8, 5),
            )[0]
            if plan is Action.ACK and _is_poison(one.value):
                plan = Action.NACK
            plans.setdefault(plan, []).append(one)
        for plan, planned in plans.items():
            await asyncio.sleep(self._rng.choice((0.01, 0.01, 0.1, 0.5)))
            match plan:
                case Action.ACK:
                    await self.ack(planned)
                case Action.NACK:
                    await self._nack(planned)
                case Action.REJECT:
                    await self._reject(planned)
                case Action.EXTEND:
                    await self._extend(planned)
                case "stall":
                    self._late += planned
        if self._late and self._rng.random() < 0.2:
            late, self._late = self._late, []
            await self.ack(late)

    async def ack(self, deliveries: list[Delivery]) -> None:
        receipts = [one.receipt for one in deliveries]
        await self._ask(Action.ACK, deliveries, lambda node: node.queue.ack(receipts))

    async def _nack(self, deliveries: list[Delivery]) -> None:
        receipts, delay_ms = [one.receipt for one in deliveries], self._rng.choice((None, None, 0, 700))
        await self._ask(
            Action.NACK, deliveries, lambda node: node.queue.nack(receipts, delay_ms=delay_ms, reason="no")
        )

    async def _reject(self, deliveries: list[Delivery]) -> None:
        receipts = [one.receipt for one in deliveries]
        await self._ask(Action.REJECT, deliveries, lambda node: node.queue.reject(receipts, reason="never"))

    async def _extend(self, deliveries: list[Delivery]) -> None:
        receipts, timeout_ms = [one.receipt for one in deliveries], self._rng.choice((0, 2_000, 8_000))
        await self._ask(
            Action.EXTEND, deliveries, lambda node: node.queue.extend(receipts, timeout_ms=timeout_ms)
        )
        self._late += deliveries

    async def _ask(
        self,
        action: Action,
        deliveries: list[Delivery],
        use: Callable[[Node], Coroutine[Any, Any, list[A | GoQueueError]]],
    ) -> None:
        sent_s = self._world.loop.time()
        asked = [Asked(action, sent_s) for _ in deliveries]
        for one, what in zip(deliveries, asked, strict=True):
            one.asked.append(what)
        answers = await self._world.call(use)
        for one, what, answer in zip(deliveries, asked, answers, strict=True):
            what.answered_s = self._world.loop.time()
            if isinstance(answer, GoQueueError):
                what.code = answer.code.value
                # A log that fails says nothing about what it holds.
                what.fate = Fate.UNKNOWN if answer.retriable else Fate.REFUSED
                continue
            what.fate = Fate.DONE
            if isinstance(answer, Prolonged):
                what.deadline_ms = answer.deadline_ms
                continue
            what.is_dead = isinstance(answer, Returned) and answer.is_dead
            self._world.history.committed.append(
                Committed(
                    self._group,
                    one.era,
                    answer.topic,
                    answer.partition,
                    answer.committed_offset,
                    sent_s,
                    what.answered_s,
                )
            )

    async def _change_life(self) -> None:
        if self._world.is_calm or self._rng.random() > 0.05:
            return
        if self._rng.random() < 0.5:
            self._world.history.left.append(Left(self._group, self._member, self._world.loop.time()))
            member = self._member
            await self._world.call(lambda node: node.queue.let_go(self._group, member))
        self._life += 1


def _is_poison(value: str) -> bool:
    """Nobody can work on it: it must end among the dead letters."""
    return crc32(value.encode()) % 12 == 0


def era_of(receipt: str) -> str:
    """The nonce without its proof: the window's number and incarnation."""
    return receipt.rsplit(":", 1)[1].rsplit(".", 1)[0]
