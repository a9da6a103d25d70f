"""Simulated members of queue groups. Most do their work; some are slow, forgetful, undecided, or die."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Protocol
from zlib import crc32

from goqueue.model.errors import GoQueueError
from goqueue.sim.http import NoAnswer
from goqueue.sim.loop import SimLoop
from goqueue.sim.queue.history import (
    Action,
    Asked,
    Committed,
    Delivery,
    Fate,
    Left,
    LostPoll,
    QueueHistory,
    Told,
)

_FORGET, _STALL = "forget", "stall"


class Surroundings(Protocol):
    """What members have to know of the run."""

    @property
    def loop(self) -> SimLoop: ...

    @property
    def history(self) -> QueueHistory: ...

    @property
    def is_calm(self) -> bool:
        """Nothing fails any more: everybody does its work and nothing else."""

    @property
    def is_done(self) -> bool: ...

    def child(self) -> Random: ...


class Way(Protocol):
    """How a member speaks with the broker."""

    @property
    def missed_s(self) -> float:
        """How long after its end a member may be missed that did not leave: then it holds nothing any more."""

    async def poll(self, member: str, limit: int, wait_ms: int) -> list[Delivery]: ...

    async def tell(
        self, member: str, action: Action, deliveries: list[Delivery]
    ) -> list[Told | GoQueueError]: ...

    async def leave(self, member: str) -> None: ...


class SimMember:
    def __init__(self, world: Surroundings, group: str, name: str, way: Way) -> None:
        self._world = world
        self._group = group
        self._name = name
        self._way = way
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
        limit, wait_ms = limit or self._rng.choice((1, 3, 10)), self._rng.choice((0, 200, 2_000))
        sent_s = self._world.loop.time()
        try:
            deliveries = await self._way.poll(self._member, limit, wait_ms)
        except (NoAnswer, GoQueueError):  # also a refused one may have leased in another partition
            self._world.history.lost_polls.append(LostPoll(self._group, sent_s))
            raise
        self._world.history.deliveries += deliveries
        return deliveries

    # ---------------------------------------------------------------- working

    async def _work(self, deliveries: list[Delivery]) -> None:
        if self._world.is_calm:
            poisoned = [one for one in deliveries if is_poison(one.value)]
            sound = [one for one in deliveries if not is_poison(one.value)]
            if sound:
                await self.ack(sound)
            if poisoned:
                await self._tell(Action.NACK, poisoned)
            return
        plans: dict[Action | str, list[Delivery]] = {}
        for one in deliveries:
            plan = self._rng.choices(
                (Action.ACK, Action.NACK, Action.REJECT, Action.EXTEND, _STALL, _FORGET),
                (50, 20, 5, 12, 8, 5),
            )[0]
            if plan is Action.ACK and is_poison(one.value):
                plan = Action.NACK
            plans.setdefault(plan, []).append(one)
        for plan, planned in plans.items():
            await asyncio.sleep(self._rng.choice((0.01, 0.01, 0.1, 0.5)))
            if isinstance(plan, Action):
                await self._tell(plan, planned)
            if plan in (Action.EXTEND, _STALL):
                self._late += planned
        if self._late and self._rng.random() < 0.2:
            late, self._late = self._late, []
            await self.ack(late)

    async def ack(self, deliveries: list[Delivery]) -> None:
        await self._tell(Action.ACK, deliveries)

    async def _tell(self, action: Action, deliveries: list[Delivery]) -> None:
        sent_s = self._world.loop.time()
        asked = [Asked(action, sent_s) for _ in deliveries]
        for one, what in zip(deliveries, asked, strict=True):
            one.asked.append(what)
        answers = await self._way.tell(self._member, action, deliveries)
        for one, what, answer in zip(deliveries, asked, answers, strict=True):
            what.answered_s = self._world.loop.time()
            if isinstance(answer, GoQueueError):
                what.code = answer.code.value
                # A log that fails says nothing about what it holds.
                what.fate = Fate.UNKNOWN if answer.retriable else Fate.REFUSED
                continue
            what.fate = Fate.DONE
            what.deadline_ms, what.is_dead = answer.deadline_ms, answer.is_dead
            if answer.committed_offset is not None:
                self._world.history.committed.append(
                    Committed(
                        self._group,
                        one.era,
                        one.place.topic,
                        one.place.partition,
                        answer.committed_offset,
                        sent_s,
                        what.answered_s,
                    )
                )

    async def _change_life(self) -> None:
        if self._world.is_calm or self._rng.random() > 0.05:
            return
        now_s = self._world.loop.time()
        if self._rng.random() < 0.5:
            self._world.history.left.append(Left(self._group, self._member, now_s))
            await self._way.leave(self._member)
        else:
            self._world.history.left.append(Left(self._group, self._member, now_s + self._way.missed_s))
        self._life += 1


def is_poison(value: str) -> bool:
    """Nobody can work on it: it must end among the dead letters."""
    return crc32(value.encode()) % 12 == 0
