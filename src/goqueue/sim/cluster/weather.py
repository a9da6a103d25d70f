"""What goes wrong in a cluster, one thing after another, decided by the seed; each ends before the next begins, more or less."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from random import Random
from typing import Final

from goqueue.sim.cluster.cluster import SimCluster
from goqueue.sim.cluster.host import SimHost
from goqueue.sim.faults import inject
from goqueue.sim.latency import Latency
from goqueue.sim.net import Network

_CLOCK_MS_MAX: Final = 60_000  # two of them must stay within what signatures allow
_SLOW: Final = Latency(usual_s_min=0.05, usual_s_max=0.4, tail_s_max=1.0, tail_rate=0.05)

_CUT_S: Final = (0.5, 5.0)  # from shorter than anybody is missed to longer than every lease and session

logger = logging.getLogger(__name__)

Episode = Callable[[], Awaitable[None]]


class Weather:
    """`names` says what has happened."""

    def __init__(
        self,
        cluster: SimCluster,
        network: Network,
        clients: list[str],
        rng: Random,
        kinds: Collection[str] | None = None,
        more: Iterable[tuple[str, Episode]] = (),
    ) -> None:
        """Of all `kinds`, or of these, and of what else is given."""
        self.names: list[str] = []
        self._cluster = cluster
        self._network = network
        self._clients = clients
        self._rng = rng
        episodes: tuple[tuple[str, Episode], ...] = (
            ("kill", self._kill),
            ("power", self._cut_power),
            ("stop", self._stop),
            ("pause", self._pause),
            ("pause", self._pause),
            ("alone", self._isolate),
            ("controller-alone", self._isolate_controller),
            ("halves", self._halve),
            ("one-way", self._cut_one_way),
            ("ring", self._ring),
            ("slow", self._slow_down),
            ("resets", self._reset),
            ("disk", self._hurt_disk),
            ("clock", self._set_clock),
            ("rolling", self._roll),
            ("all-at-once", self._end_all),
            ("leaders", self._kill_twice),
            ("slow-election", self._elect_slowly),
        )
        self._episodes = [*(one for one in episodes if kinds is None or one[0] in kinds), *more]

    async def rage(self, episode_count: int) -> None:
        for _ in range(episode_count):
            name, episode = self._rng.choice(self._episodes)
            self.names.append(name)
            logger.info("weather %s", name)
            await episode()
            logger.info("weather %s is over", self.names[-1])
            await asyncio.sleep(self._rng.uniform(0.2, 2.5))
            self._revive()

    async def calm(self) -> None:
        """Nothing fails any more and clocks are right; whoever is down or has a partition that stopped is started again."""
        self._network.heal()
        for host in self._cluster.hosts.values():
            host.disk.calm()
            host.clock.ahead_ms = 0
            host.resume()
            if host.is_up and host.is_ready and not host.is_well:
                await host.crash(power_cut=False)
        self._revive()

    async def spoil_disk(self) -> None:
        """One host gets an empty one, or bits of its files rot, when everybody has everything; what only that disk had would be
        gone for good. As soon as it is back another one is killed: whoever counts on what the first had will miss it."""
        await self.calm()
        if not await self._until(lambda: not self._cluster.unsettled(), 30.0) or not self._has_spare_voter():
            return
        self._cluster.keeps_voters = True
        host, other = self._rng.sample(list(self._cluster.hosts.values()), 2)
        name = self._rng.choice(("lost-disk", "rot"))
        self.names.append(name)
        logger.info("weather %s %s", name, host.name)
        await host.crash(power_cut=False)
        host.spoiled_s = asyncio.get_running_loop().time()
        if name == "rot":
            for _ in range(self._rng.randint(1, 4)):
                logger.info("a bit is flipped %s", host.disk.flip_random_bit("logs/*.log"))
        else:
            host.disk.wipe()
        await self._down((0.0, 3.0))
        host.start()
        if await self._until(partial(_is_ready, host), 30.0):
            await self._down((0.0, 1.0))
            await other.crash(power_cut=self._rng.random() < 0.5)
            await self._down()
        logger.info("weather %s is over", name)

    def _has_spare_voter(self) -> bool:
        """Operators may have left two, or be about to; then none may lose what it knows."""
        if self._cluster.is_changing_voters:
            return False
        controller = self._cluster.controller()
        node = controller.node if controller is not None else None
        return node is not None and len(node._quorum.raft.voters) > 2

    def _revive(self) -> None:
        self._cluster.start()

    # ---------------------------------------------------------------- processes

    def _any(self) -> SimHost:
        return self._cluster.hosts[self._rng.choice(self._cluster.names)]

    async def _down(self, seconds: tuple[float, float] = (0.1, 5.0)) -> None:
        await asyncio.sleep(self._rng.uniform(*seconds))

    async def _kill(self) -> None:
        await self._any().crash(power_cut=False)
        await self._down()

    async def _cut_power(self) -> None:
        await self._any().crash(power_cut=True)
        await self._down()

    async def _stop(self) -> None:
        host = self._any()
        if host.is_ready:
            await host.stop()
        await self._down()

    async def _kill_twice(self) -> None:
        """The controller, and soon after it whoever it is then."""
        for _ in range(2):
            host = self._cluster.controller() or self._any()
            await host.crash(power_cut=self._rng.random() < 0.5)
            await self._down((0.5, 4.0))

    async def _elect_slowly(self) -> None:
        """Nobody leads, votes take long, and voters forget whatever is not on their disks: candidates meet."""
        names = self._cluster.names
        for at, one in enumerate(names):
            for other in names[at + 1 :]:
                self._network.slow(one, other, _SLOW)
        leader = self._cluster.controller() or self._any()
        await leader.crash(power_cut=False)
        for _ in range(self._rng.randint(0, 5)):
            await self._down((0.2, 1.0))
            host = self._any()
            if host is not leader:
                await host.crash(power_cut=self._rng.random() < 0.5)
                host.start()
        await self._down((0.5, 3.0))
        self._network.heal()

    async def _pause(self) -> None:
        """Longer than its lease, mostly: it comes back and believes that it still leads."""
        host = (self._cluster.controller() if self._rng.random() < 0.3 else None) or self._any()
        host.pause()
        await self._down((0.3, 6.0))
        host.resume()

    async def _roll(self) -> None:
        """A rolling restart, as an upgrade does it."""
        for host in self._cluster.hosts.values():
            if host.is_ready:
                await host.stop()
            self._revive()
            await self._until(partial(_is_ready, host), 10.0)

    async def _until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        for _ in range(int(seconds * 10)):
            if is_so():
                return True
            await asyncio.sleep(0.1)
        return False

    async def _end_all(self) -> None:
        is_power = self._rng.random() < 0.6
        for host in self._cluster.hosts.values():
            await host.crash(power_cut=is_power)
        await self._down((0.1, 1.0))
        for host in self._rng.sample(list(self._cluster.hosts.values()), len(self._cluster.hosts)):
            if not host.is_up:
                host.start()
            await self._down((0.0, 1.0))

    async def _hurt_disk(self) -> None:
        """Of one host only, which must not last: its disk is quiet before the next one fails."""
        host = self._any()
        self.names[-1] += f"-{inject(host.disk, self._rng)}"
        await self._down((1.0, 6.0))
        host.disk.calm()
        if not host.is_well:
            await host.crash(power_cut=False)

    async def _set_clock(self) -> None:
        self._any().clock.ahead_ms = self._rng.randint(-_CLOCK_MS_MAX, _CLOCK_MS_MAX)

    # ---------------------------------------------------------------- cables

    async def _isolate(self) -> None:
        await self._part([self._any().name])

    async def _isolate_controller(self) -> None:
        await self._part([(self._cluster.controller() or self._any()).name])

    async def _halve(self) -> None:
        names = self._cluster.names
        await self._part(self._rng.sample(names, len(names) // 2))

    async def _part(self, some: list[str]) -> None:
        """From all other nodes; clients reach them all the same, or half of the time only the others."""
        others = [name for name in self._cluster.names if name not in some]
        clients = self._clients if self._rng.random() < 0.3 else []
        does_reset = self._rng.random() < 0.5
        for one in some:
            for other in [*others, *clients]:
                self._network.partition(one, other, reset=does_reset)
        await self._down(_CUT_S)
        self._network.heal()

    async def _cut_one_way(self) -> None:
        one, other = self._rng.sample(self._cluster.names, 2)
        self._network.partition(one, other, one_way=True)
        await self._down(_CUT_S)
        self._network.heal()

    async def _ring(self) -> None:
        """Each reaches only its neighbours; of three, two do not reach each other."""
        names = self._rng.sample(self._cluster.names, len(self._cluster.names))
        count = len(names)
        for at, one in enumerate(names):
            for other in names[at + 1 :]:
                distance = names.index(other) - at
                if (count == 3 and at == 0 and distance == 1) or (
                    count > 3 and distance not in (1, count - 1)
                ):
                    self._network.partition(one, other, reset=self._rng.random() < 0.3)
        await self._down(_CUT_S)
        self._network.heal()

    async def _slow_down(self) -> None:
        one, other = self._rng.sample(self._cluster.names, 2)
        self._network.slow(one, other, _SLOW)
        await self._down(_CUT_S)
        self._network.heal()

    async def _reset(self) -> None:
        for _ in range(self._rng.randint(1, 4)):
            self._network.reset(self._rng.choice([*self._cluster.names, *self._clients]))
            await self._down((0.05, 1.0))


def _is_ready(host: SimHost) -> bool:
    return host.is_ready
