"""A few rounds of attacks on the port for other nodes; `make fuzz SECONDS=600` goes on for longer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from tests.fuzz.cluster_attacks import Attack, asked_before_login, bad_login, forged, replayed
from tests.fuzz.cluster_target import ClusterTarget
from tests.fuzz.rounds import NODES, Found, described, run_round
from tests.fuzz.target import Broken

from goqueue.api.kafka import peer_login
from goqueue.node.cluster.login import ServerLogin
from goqueue.node.cluster.replays import Replays
from goqueue.node.cluster.secret import Claim, Secret

ROUNDS = [0, 1]  # one on each event loop
TRY_COUNT = 20


@pytest.mark.parametrize("seed", ROUNDS)
def test_the_port_for_nodes_survives_strangers_and_broken_nodes(seed: int) -> None:
    try:
        run_round(seed, attack_count=40, port=NODES)
    except Found as found:
        pytest.fail(described(found))


async def failed(target: ClusterTarget) -> None:
    target.node.fail(ValueError("a bug"))


async def logged(target: ClusterTarget) -> None:
    logging.getLogger("goqueue").error("a bug")


async def obeyed(target: ClusterTarget) -> None:
    await target.node.topics.create("of-a-stranger", partition_count=1, overrides={})


@pytest.mark.parametrize("harm", [failed, logged, obeyed])
def test_fuzzer_notices_what_an_attack_has_done(
    harm: Callable[[ClusterTarget], Awaitable[None]], tmp_path: Path
) -> None:
    async def main() -> None:
        async with ClusterTarget(tmp_path) as target:
            await target.check()
            await harm(target)
            with pytest.raises(Broken):
                await target.check()
            target.forgive()

    asyncio.run(main())


def let_in(self: ServerLogin, proof: bytes) -> bytes:
    self.source = "anybody"
    return proof


def believe(self: Secret, header: str, *_: str, **__: str | int | None) -> Claim:
    return Claim("anybody", "")


@contextmanager
def unsigned_requests() -> Iterator[None]:
    with patch.object(Secret, "admit", believe), patch.object(Claim, "check_body", lambda self, body: None):
        yield


async def tried_often(attack: Attack, target: ClusterTarget) -> None:
    for seed in range(TRY_COUNT):
        await attack(Random(seed), target)


BREACHES: list[tuple[Attack, AbstractContextManager[object]]] = [
    (forged, unsigned_requests()),
    (replayed, patch.object(Replays, "admit", lambda *_: True)),
    (bad_login, patch.object(ServerLogin, "accept", let_in)),
    (asked_before_login, patch.object(peer_login, "_for_peers", lambda api: api)),
]


@pytest.mark.parametrize(("attack", "breach"), BREACHES, ids=[attack.__name__ for attack, _ in BREACHES])
def test_an_attack_gets_through_where_the_port_is_broken(
    attack: Attack, breach: AbstractContextManager[object], tmp_path: Path
) -> None:
    async def main() -> None:
        async with ClusterTarget(tmp_path) as target:
            with pytest.raises(Broken):
                await tried_often(attack, target)
            target.forgive()

    with breach:
        asyncio.run(main())
