"""Simulated publishers: plain messages, with keys, with priorities, with delays; and some are cancelled again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from goqueue.model.acks import Acks
from goqueue.model.codes import Code
from goqueue.model.delay import DELIVER_AT_HEADER
from goqueue.model.errors import GoQueueError
from goqueue.model.priority import LANE_COUNT, NORMAL, PRIORITY_HEADER
from goqueue.model.record import NewRecord
from goqueue.node.requests import NewMessage, Outcome
from goqueue.sim.http import NoAnswer
from goqueue.sim.queue.history import Fate, Place, Sent
from goqueue.sim.queue.world import World

# After these nothing was stored. Others leave it open.
_DEFINITE = {Code.DISK_FULL, Code.NOT_READY}
_DELAY_MS_MAX = 12_000


class SimPublisher:
    def __init__(self, world: World, name: str, topic: str, *, is_keyed: bool) -> None:
        self._world = world
        self._name = name
        self._topic = topic
        self._is_keyed = is_keyed
        self._rng = world.child()
        self._serial = 0

    async def run(self, request_count: int) -> None:
        for _ in range(request_count):
            await asyncio.sleep(self._rng.expovariate(3))
            sent = [self._message() for _ in range(self._rng.randint(1, 5))]
            await self.publish(sent)
            if self._rng.random() < 0.3:
                await self._cancel(sent)

    async def publish(self, sent: Sequence[Sent]) -> None:
        acks = Acks.ALL if self._rng.random() < 0.6 else Acks.LEADER
        messages = []
        for one in sent:
            one.is_durable = acks is Acks.ALL or one.due_ms is not None
            self._world.history.sent[one.value] = one
            messages.append(NewMessage(_record(one)))
        try:
            outcomes = await self._world.call(
                lambda node: node.publisher.publish(self._topic, messages, acks=acks)
            )
        except NoAnswer:
            return
        except GoQueueError as error:
            outcomes = [Outcome(None, None, error) for _ in sent]
        for one, outcome in zip(sent, outcomes, strict=True):
            self._note(one, outcome)

    def _note(self, one: Sent, outcome: Outcome) -> None:
        if outcome.partition is not None and outcome.offset is not None and outcome.error is None:
            one.fate = Fate.DONE
            one.place = Place(self._topic, outcome.partition, outcome.offset)
            if outcome.deliver_at_ms is None:
                one.due_ms = None  # it was due at once
        elif outcome.error is not None and outcome.error.code in _DEFINITE:
            one.fate = Fate.REFUSED

    def _message(self) -> Sent:
        self._serial += 1
        rng, value = self._rng, f"{self._name}-{self._serial}"
        if self._is_keyed:
            return Sent(value, self._topic, f"k{rng.randrange(3)}", NORMAL, None, True)
        lane = rng.randrange(LANE_COUNT) if rng.random() < 0.4 else NORMAL
        due_ms = None
        if rng.random() < 0.2:
            due_ms = self._world.clock.now_ms() + rng.randint(0, _DELAY_MS_MAX)
        return Sent(value, self._topic, None, lane, due_ms, True)

    async def _cancel(self, sent: Sequence[Sent]) -> None:
        for one in sent:
            if one.due_ms is None or one.place is None or self._rng.random() < 0.5:
                continue
            place, one.cancel = one.place, Fate.UNKNOWN
            try:
                await self._world.call(lambda node, place=place: node.scheduler.cancel(*place))  # type: ignore[misc]  # bound now
                one.cancel = Fate.DONE
            except NoAnswer:
                pass
            except GoQueueError as error:
                if error.code in (Code.SCHEDULE_FIRED, Code.SCHEDULE_NOT_FOUND):
                    one.cancel = Fate.REFUSED


def _record(one: Sent) -> NewRecord:
    headers: list[tuple[str, bytes | None]] = []
    if one.lane != NORMAL:
        headers.append((PRIORITY_HEADER, str(one.lane).encode()))
    if one.due_ms is not None:
        headers.append((DELIVER_AT_HEADER, str(one.due_ms).encode()))
    key = None if one.key is None else one.key.encode()
    return NewRecord(key, one.value.encode(), tuple(headers))
