"""Nodes on a simulated network: messages pass, partitions hold them up or break them, and healing is enough."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from tests.support.peers import Links, Station

from goqueue.core.raft.messages import AskVote
from goqueue.model.cluster_errors import PeerUnreachable
from goqueue.node.cluster.ports import Beat
from goqueue.peer.dialling import LinkTimes
from goqueue.sim.disk import SimDisk
from goqueue.sim.loop import SimLoop, run
from goqueue.sim.process import Process

SEEDS = range(8)
TIMES = LinkTimes(connect_ms=500, message_ms=500, beat_ms=500, ask_ms=500, call_ms=500, fetch_slack_ms=500)
NAMES = ("n1", "n2", "n3")
PORT = 7_000


def vote(source: str, target: str, term: int) -> AskVote:
    return AskVote(source, target, term, 0, 0, is_pre=False, is_transfer=False)


class Host:
    """A node on a host of its own."""

    def __init__(self, loop: SimLoop, name: str, rng: Random) -> None:
        self.name = name
        self.process = Process(loop, name, SimDisk(Random(rng.getrandbits(32))))
        self.station = Station(name)
        self.links: Links

    async def start(self) -> None:
        await self.process.spawn(self._start())

    async def _start(self) -> None:
        self.links = Links(self.name, address_of=lambda target: (target, PORT), times=TIMES)
        await self.station.start(self.name, PORT)

    async def do(self, act: Callable[[Links], Awaitable[object]]) -> object:
        async def acting() -> object:
            return await act(self.links)

        return await self.process.spawn(acting())

    async def send(self, target: str, term: int) -> None:
        async def sending(links: Links) -> None:
            links.send(vote(self.name, target, term))

        await self.do(sending)

    async def beat(self, target: str) -> None:
        await self.do(lambda links: links.beat(target, Beat(self.name, "i", 0, is_ready=True)))

    async def stop(self) -> None:
        await self.do(lambda links: links.close())
        await self.process.spawn(self.station.stop())

    def terms(self) -> list[int]:
        return [message.term for _, message in self.station.service.received]


def simulate(seed: int, main: Callable[[SimLoop, dict[str, Host]], Awaitable[None]]) -> list[list[int]]:
    """What each of them has received."""

    async def start(loop: SimLoop) -> list[list[int]]:
        rng = Random(seed)
        hosts = {name: Host(loop, name, rng) for name in NAMES}
        for host in hosts.values():
            await host.start()
        await main(loop, hosts)
        for host in hosts.values():
            await host.stop()
        return [host.terms() for host in hosts.values()]

    return run(start, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_pass_between_all(seed: int) -> None:
    async def main(loop: SimLoop, hosts: dict[str, Host]) -> None:
        for term in range(1, 6):
            for source in hosts.values():
                for target in NAMES:
                    if target != source.name:
                        await source.send(target, term)
        for host in hosts.values():
            await host.station.service.until_received(10)
            for name in NAMES:
                if name != host.name:
                    sent = [
                        message.term for source, message in host.station.service.received if source == name
                    ]
                    assert sent == [1, 2, 3, 4, 5]

    simulate(seed, main)


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_partition_holds_messages_up_and_healing_lets_the_newest_through(seed: int, reset: bool) -> None:
    async def main(loop: SimLoop, hosts: dict[str, Host]) -> None:
        first, second, third = hosts.values()
        await first.send("n2", 1)
        await second.station.service.until_received(1)
        loop.network.partition("n1", "n2", reset=reset)
        for term in range(2, 200):
            await first.send("n2", term)
            await asyncio.sleep(0.05)
        await first.send("n3", 1)
        await third.station.service.until_received(1)
        assert second.terms() == [1]
        with pytest.raises(PeerUnreachable):
            await first.beat("n2")
        await third.beat("n2")
        loop.network.heal()
        while 199 not in second.terms():
            await second.station.service.until_received(len(second.terms()) + 1)
        assert len(second.terms()) < 100  # the outbox has a bound
        await asyncio.sleep(2.0)
        await first.beat("n2")

    simulate(seed, main)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_way_partition_leaves_the_other_way_without_answers_only(seed: int) -> None:
    async def main(loop: SimLoop, hosts: dict[str, Host]) -> None:
        first, second, _ = hosts.values()
        await first.beat("n2")
        loop.network.partition("n2", "n1", one_way=True)
        with pytest.raises(PeerUnreachable):
            await first.beat("n2")
        assert len(second.station.service.asked) == 2  # it came, and what became of it is not known
        loop.network.heal()
        await first.beat("n2")

    simulate(seed, main)


@pytest.mark.parametrize("seed", SEEDS)
def test_node_that_crashes_and_comes_back_is_found(seed: int) -> None:
    async def main(loop: SimLoop, hosts: dict[str, Host]) -> None:
        first, second, _ = hosts.values()
        await first.beat("n2")
        await second.process.crash(power_cut=True)
        with pytest.raises(PeerUnreachable):
            await first.beat("n2")
        hosts["n2"] = again = Host(loop, "n2", Random(seed))
        await again.start()
        await first.beat("n2")
        await again.beat("n1")

    simulate(seed, main)


def test_same_seed_gives_the_same_run() -> None:
    async def main(loop: SimLoop, hosts: dict[str, Host]) -> None:
        for term in range(1, 50):
            await hosts["n1"].send("n2", term)
            if term == 20:
                loop.network.partition("n1", "n2", reset=True)
            if term == 40:
                loop.network.heal()
            await asyncio.sleep(0.05)
        await asyncio.sleep(3.0)

    assert simulate(4, main) == simulate(4, main)
