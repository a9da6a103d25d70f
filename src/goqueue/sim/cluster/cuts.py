"""Networks that are cut in every shape, while the cut lasts nodes fall and others are elected; then it heals by itself.

A shape is the ways that carry nothing, each from one host to another. Nothing that is sent to a deaf node arrives, and what it sends does:
the others hear that it is well, and it does not hear that they have moved on. A mute one is the other way round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import permutations, product
from random import Random
from typing import Final, NamedTuple

from goqueue.sim.cluster.cluster import SimCluster
from goqueue.sim.cluster.host import SimHost
from goqueue.sim.net import Network

_STEP_S: Final = (0.2, 2.5)  # between two things that happen while it is cut: an election takes about as long
_STEPS_MAX: Final = 4
_DOWN_S: Final = (0.0, 1.5)
_RESET_RATE: Final = 0.3
_RESTART_RATE: Final = 0.6

Way = tuple[str, str]  # from, to


class Cut(NamedTuple):
    ways: list[Way]
    others: list[str]  # who is left to decide


Shape = Callable[[], Cut]


class Cuts:
    """Only the ways that were cut are healed, so that two cuts may overlap."""

    def __init__(self, cluster: SimCluster, network: Network, clients: list[str], rng: Random) -> None:
        self._cluster = cluster
        self._network = network
        self._clients = clients
        self._rng = rng

    def episodes(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        shapes: tuple[tuple[str, Shape], ...] = (
            ("deaf", self._deaf),
            ("mute", self._mute),
            ("bridge", self._bridge),
            ("ring", self._ring),
            ("halves", self._halves),
            ("one-way", self._one_way),
            ("controller-alone", self._controller_alone),
        )
        return [(name, partial(self._cut, shape)) for name, shape in shapes]

    async def _cut(self, shape: Shape) -> None:
        ways, others = shape()
        does_reset = self._rng.random() < _RESET_RATE
        for source, target in ways:
            self._network.partition(source, target, one_way=True, reset=does_reset)
        for _ in range(self._rng.randint(0, _STEPS_MAX)):
            await asyncio.sleep(self._rng.uniform(*_STEP_S))
            if self._rng.random() < _RESTART_RATE:
                await self._restart(self._one_of(others))
        await asyncio.sleep(self._rng.uniform(*_STEP_S))
        for one, other in ways:
            self._network.heal(one, other)

    def _one_of(self, others: list[str]) -> SimHost:
        """Half of the time whom they have elected; whoever is taken, what it has voted must outlast it."""
        ruling = [name for name in others if self._rules(name)]
        return self._cluster.hosts[
            self._rng.choice(ruling if ruling and self._rng.random() < 0.5 else others)
        ]

    def _rules(self, name: str) -> bool:
        host = self._cluster.hosts[name]
        return host.is_ready and host.node is not None and host.node._quorum.is_active

    async def _restart(self, host: SimHost) -> None:
        await host.crash(power_cut=self._rng.random() < 0.5)
        await asyncio.sleep(self._rng.uniform(*_DOWN_S))
        if not host.is_up:
            host.start()

    # ---------------------------------------------------------------- shapes

    def _deaf(self) -> Cut:
        one, others = self._one_and_others()
        return Cut([(other, one) for other in [*others, *self._clients_maybe()]], others)

    def _mute(self) -> Cut:
        one, others = self._one_and_others()
        return Cut([(one, other) for other in [*others, *self._clients_maybe()]], others)

    def _controller_alone(self) -> Cut:
        one, others = self._one_and_others(controller_rate=1.0)
        return Cut(_both_ways(product([one], [*others, *self._clients_maybe()])), others)

    def _halves(self) -> Cut:
        some, others = self._split(self._shuffled())
        return Cut(_both_ways(product(some, [*others, *self._clients_maybe()])), others)

    def _bridge(self) -> Cut:
        """The one in the middle reaches both sides, and each side with it is as many as have to agree."""
        names = self._shuffled()
        return Cut(_both_ways(product(*self._split(names[1:]))), names)

    def _ring(self) -> Cut:
        """Each reaches its two neighbours only. Of three that would be everybody; there two of them do not reach each other."""
        names = self._shuffled()
        count = len(names)
        if count == 3:
            return Cut(_both_ways([(names[0], names[1])]), names)
        ways = [
            (names[one], names[other])
            for one, other in permutations(range(count), 2)
            if (one - other) % count not in (1, count - 1)
        ]
        return Cut(ways, names)

    def _one_way(self) -> Cut:
        one, other = self._rng.sample(self._cluster.names, 2)
        return Cut([(one, other)], [name for name in self._cluster.names if name != one])

    def _one_and_others(self, controller_rate: float = 0.5) -> tuple[str, list[str]]:
        controller = self._cluster.controller() if self._rng.random() < controller_rate else None
        one = controller.name if controller is not None else self._rng.choice(self._cluster.names)
        return one, [name for name in self._cluster.names if name != one]

    def _shuffled(self) -> list[str]:
        return self._rng.sample(self._cluster.names, len(self._cluster.names))

    def _split(self, names: list[str]) -> tuple[list[str], list[str]]:
        """The second part is the larger one, where there is one."""
        half = len(names) // 2
        return names[:half], names[half:]

    def _clients_maybe(self) -> list[str]:
        return list(self._clients) if self._rng.random() < 0.5 else []


def _both_ways(pairs: Iterable[tuple[str, str]]) -> list[Way]:
    return [way for one, other in pairs for way in ((one, other), (other, one))]
