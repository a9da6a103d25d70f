"""A few rounds of attacks with fixed seeds; `make fuzz SECONDS=600` goes on for longer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest
from tests.fuzz import rounds
from tests.fuzz.rounds import Found, described, run_round
from tests.fuzz.target import Broken, Target

ROUNDS = [0, 1]  # one on each event loop


@pytest.mark.parametrize("seed", ROUNDS)
def test_listener_survives_hostile_clients(seed: int) -> None:
    try:
        run_round(seed, attack_count=40)
    except Found as found:
        pytest.fail(described(found))


async def failed(target: Target) -> None:
    target.node.fail(ValueError("a bug"))


async def logged(target: Target) -> None:
    logging.getLogger("goqueue").error("a bug")


async def reached_the_loop(target: Target) -> None:
    asyncio.get_running_loop().call_soon(int, "a bug")
    await asyncio.sleep(0)


async def stopped(target: Target) -> None:
    await target.listener.stop(0.0)


@pytest.mark.parametrize("harm", [failed, logged, reached_the_loop, stopped])
def test_fuzzer_notices(harm: Callable[[Target], Awaitable[None]], tmp_path: Path) -> None:
    async def main() -> None:
        async with Target(tmp_path) as target:
            await target.check()
            await harm(target)
            with pytest.raises((Broken, ConnectionRefusedError)):
                await target.check()
            target.forgive()

    asyncio.run(main())


def test_what_was_found_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def attack(random: Random, target: Target) -> None:
        target.sent.append(random.randbytes(3))
        raise Broken("a bug")

    monkeypatch.setattr(rounds, "chosen", lambda random: attack)
    with pytest.raises(Found, match=r"--replay 6:0") as found:
        run_round(6, attack_count=2)
    sent = Random("6:0").randbytes(3).hex()
    assert sent in str(found.value)
    assert "Broken: a bug" in described(found.value)
