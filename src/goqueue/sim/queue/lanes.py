"""A group reads a topic of which every lane is full: each lane gets its share, and none waits too long."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random

from goqueue.model.priority import LANE_COUNT, STARVATION_MS_MAX, WEIGHTS
from goqueue.sim.queue.history import Delivery, Fate, Sent
from goqueue.sim.queue.members import SimMember
from goqueue.sim.queue.publishers import SimPublisher
from goqueue.sim.queue.receipt_way import ReceiptWay
from goqueue.sim.queue.world import World

LANES = "lanes"
_GROUP = "lane readers"
_COUNTS = (120, 70, 50, 34, 26)
_ROUNDS = 2
_DURATION_S_MAX = 150.0
_PAUSE_S = 1.0


class LaneReading:
    """In haste it takes two rounds with every lane full; at leisure so long that lanes would starve."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = Random(world.rng.getrandbits(64))
        self._is_slow = self._rng.random() < 0.5
        self._member = SimMember(world, _GROUP, "lanes0", ReceiptWay(world, _GROUP, [(LANES, 0)]))

    async def run(self) -> None:
        await self._publish()
        seen: list[Delivery] = []
        started_s = self._world.loop.time()
        while len(seen) < _ROUNDS * sum(WEIGHTS) and self._world.loop.time() < started_s + _DURATION_S_MAX:
            limit = self._rng.randint(1, 2) if self._is_slow else self._rng.choice((1, 7, 30))
            found = await self._member.poll(min(limit, _ROUNDS * sum(WEIGHTS) - len(seen)))
            if found:
                await self._member.ack(found)
            seen += found
            await asyncio.sleep(self._rng.uniform(1.0, 4.0) if self._is_slow else 0.01)
        if self._is_slow:
            self._check_waits(seen)
        else:
            self._check_shares(seen)

    async def _publish(self) -> None:
        publisher = SimPublisher(self._world, "lanes", LANES, is_keyed=False)
        sent = [
            Sent(f"lane-{lane}-{number}", LANES, None, lane, None, True)
            for lane in range(LANE_COUNT)
            for number in range(_COUNTS[lane])
        ]
        self._rng.shuffle(sent)
        while any(one.fate is not Fate.DONE for one in sent):  # the disk may still count as full
            await publisher.publish(sent)
            await asyncio.sleep(_PAUSE_S)

    def _check_shares(self, seen: list[Delivery]) -> None:
        """Of whole rounds; what one poll gives is in the order of the lanes."""
        counts = tuple(sum(one.lane == lane for one in seen) for lane in range(LANE_COUNT))
        expected = tuple(_ROUNDS * weight for weight in WEIGHTS)
        if counts != expected:
            self._world.history.violate(f"lanes were served {counts}, not {expected}")

    def _check_waits(self, seen: list[Delivery]) -> None:
        for lane in range(LANE_COUNT):
            served_s = [seen[0].answered_s, *(one.answered_s for one in seen if one.lane == lane)]
            waits = [after - before for before, after in pairwise(served_s)]
            waits.append(seen[-1].answered_s - served_s[-1])
            if (
                sum(one.lane == lane for one in seen) < _COUNTS[lane]
                and max(waits) > STARVATION_MS_MAX / 1_000
            ):
                self._world.history.violate(f"lane {lane} waited {max(waits):.0f} s")
