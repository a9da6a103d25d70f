"""Publishers over REST: plain messages, with keys, with priorities, with delays; some of those are cancelled again.

Nothing is repeated: a publish without an answer may have been stored or not, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from goqueue.model.duration import format_instant
from goqueue.model.errors import GoQueueError
from goqueue.model.priority import LANE_COUNT, NORMAL
from goqueue.sim.cluster.queue_world import QueueWorld
from goqueue.sim.http import NoAnswer
from goqueue.sim.kafka.history import now_ms
from goqueue.sim.queue.history import Fate, Place, Sent

_DELAY_MS_MAX = 12_000
_CANCEL_REFUSED = ("schedule_fired", "schedule_not_found")


class RestPublisher:
    def __init__(
        self, world: QueueWorld, name: str, topic: str, *, is_keyed: bool = False, delay_rate: float = 0.2
    ) -> None:
        self._world = world
        self._name = name
        self._topic = topic
        self._is_keyed = is_keyed
        self._delay_rate = delay_rate
        self._rng = world.child()
        self._client = world.client()
        self._serial = 0

    async def run(self, request_count: int) -> None:
        try:
            for _ in range(request_count):
                await self._world.world.breathe(self._rng, 1.5)
                sent = [self._message() for _ in range(self._rng.randint(1, 4))]
                await self._publish(sent)
                if self._rng.random() < 0.4:
                    await asyncio.sleep(self._rng.choice((0.0, 0.5, 3.0)))
                    await self._cancel(sent)
        finally:
            self._client.close()

    def _message(self) -> Sent:
        self._serial += 1
        rng, value = self._rng, f"{self._name}-{self._serial}"
        if self._is_keyed:
            return Sent(value, self._topic, f"k{rng.randrange(3)}", NORMAL, None, True)
        lane = rng.randrange(LANE_COUNT) if rng.random() < 0.3 else NORMAL
        due_ms = now_ms() + rng.randint(0, _DELAY_MS_MAX) if rng.random() < self._delay_rate else None
        return Sent(value, self._topic, None, lane, due_ms, True)

    async def _publish(self, sent: Sequence[Sent]) -> None:
        self._world.history.sent |= {one.value: one for one in sent}
        body = {"messages": [_message(one) for one in sent], "acks": "all"}
        try:
            answer = await self._client.ask("POST", f"/topics/{self._topic}/messages", body)
        except NoAnswer:
            await self._client.pause()
            return
        for one, result in zip(
            sent, cast("list[dict[str, Any]]", answer.body.get("results", [])), strict=False
        ):
            if "code" not in result:
                one.fate = Fate.DONE
                one.place = Place(self._topic, result["partition"], result["offset"])
                if not result["delayed"]:
                    one.due_ms = None  # it was due at once

    async def _cancel(self, sent: Sequence[Sent]) -> None:
        for one in sent:
            if one.due_ms is None or one.place is None or self._rng.random() < 0.5:
                continue
            _, partition, offset = one.place
            one.cancel = Fate.UNKNOWN
            try:
                await self._client.order("DELETE", f"/topics/{self._topic}/delayed/{partition}/{offset}")
                one.cancel = Fate.DONE
            except NoAnswer:
                await self._client.pause()
            except GoQueueError as error:
                if error.code.value in _CANCEL_REFUSED:
                    one.cancel = Fate.REFUSED


def _message(one: Sent) -> dict[str, object]:
    message: dict[str, object] = {"value": one.value}
    if one.key is not None:
        message["key"] = one.key
    if one.lane != NORMAL:
        message["priority"] = one.lane
    if one.due_ms is not None:
        message["deliver_at"] = format_instant(one.due_ms)
    return message
