"""A node of three that starts alone: it says what it waits for, once in a while, and joins and serves when there are others."""

from __future__ import annotations

import asyncio
import logging
import re
from itertools import pairwise

import pytest
from msgspec.structs import replace
from tests.support.sim_clusters import PlayedCluster

from goqueue.node.config import NodeConfig
from goqueue.sim.cluster import cluster as sim_cluster
from goqueue.sim.cluster.host import node_config
from goqueue.sim.loop import SimLoop, run

INTERVAL_S = 4.0
ATTEMPT_S_MAX = 2.6  # a voter looks for a leader for twice `dead_ms`, asks somebody, and rests for a moment
ALONE_S = 60.0
SENTENCE = re.compile(r"there is no quorum waited_s=(\d+) voters=node-1,node-2,node-3")


def test_a_node_that_starts_alone_says_so_once_in_an_interval_and_joins_when_there_are_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main(loop: SimLoop) -> list[tuple[float, float]]:
        played = PlayedCluster(loop, 3)
        said = Said(loop)
        logger = logging.getLogger("goqueue.node.cluster.membership")
        logger.addHandler(said)
        try:
            first, *others = played.cluster.hosts.values()
            began = loop.time()
            first.start()
            await asyncio.sleep(ALONE_S)
            assert not first.is_ready
            alone = list(said.heard)
            for host in others:
                host.start()
            await played.until(lambda: not played.cluster.unsettled())
            assert first.is_well
            await played.create(replication_factor=3, num_partitions=1)
            assert await played.produce(await played.leader(), "served") == (0, 0)
            joined = len(said.heard)
            await asyncio.sleep(3 * INTERVAL_S)
            assert len(said.heard) == joined <= len(alone) + 1
            return [(at - began, waited_s) for at, waited_s in alone]
        finally:
            logger.removeHandler(said)
            await played.end()

    monkeypatch.setattr(sim_cluster, "node_config", of_little_patience)
    said = run(main, seed=1)
    times = [0.0, *(at for at, _ in said)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(said) >= int(ALONE_S / (INTERVAL_S + ATTEMPT_S_MAX)), said
    assert all(INTERVAL_S <= gap <= INTERVAL_S + ATTEMPT_S_MAX for gap in gaps), gaps
    assert all(waited_s == pytest.approx(at, abs=1.0) for at, waited_s in said), said


class Said(logging.Handler):
    """When it was said that there is no quorum, and for how long that was so."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[tuple[float, float]] = []
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        found = SENTENCE.fullmatch(record.getMessage())
        if found:
            assert record.levelno == logging.ERROR
            self.heard.append((self._loop.time(), float(found[1])))


def of_little_patience(name: str, names: list[str], *, has_racks: bool = False) -> NodeConfig:
    config = node_config(name, names, has_racks=has_racks)
    return replace(config, cluster=replace(config.cluster, quorum_wait_ms=int(INTERVAL_S * 1_000)))
