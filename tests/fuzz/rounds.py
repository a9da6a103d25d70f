"""Rounds of attacks on one port of one broker. A round is repeated by its seed, one of its attacks by seed and number."""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Final, Protocol, TypeVar

import uvloop
from tests.fuzz import cluster_attacks
from tests.fuzz.attacks import chosen
from tests.fuzz.cluster_target import ClusterTarget
from tests.fuzz.target import Target

CLIENTS: Final = "clients"  # whose port is attacked
NODES: Final = "nodes"
PORTS: Final = (CLIENTS, NODES)
_ATTACK_S_MAX = 120.0
_PRINTED_BYTES_MAX = 1_000


class Found(Exception):
    """An attack that the broker did not survive; the text says how to repeat it."""


class Arena(Protocol):
    sent: list[bytes]  # by the attack that is under way

    def forget(self) -> None:
        """The next attack begins."""

    async def check(self) -> None:
        """Raises `Broken` where the broker is not what it was."""


A = TypeVar("A", bound=Arena)


def run_round(seed: int, *, attack_count: int, only: int | None = None, port: str = CLIENTS) -> Counter[str]:
    """How often each attack was tried. Even seeds run on uvloop, odd ones on asyncio's own loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop if seed % 2 == 0 else None
    numbers = [only] if only is not None else list(range(attack_count))
    with asyncio.Runner(loop_factory=factory) as runner, tempfile.TemporaryDirectory() as folder:
        return runner.run(_round(seed, Path(folder), numbers, port))


async def _round(seed: int, folder: Path, numbers: list[int], port: str) -> Counter[str]:
    if port == NODES:
        async with ClusterTarget(folder) as cluster:
            return await _attacked(cluster, cluster_attacks.chosen, seed, numbers, port)
    async with Target(folder) as target:
        return await _attacked(target, chosen, seed, numbers, port)


async def _attacked(
    arena: A,
    choose: Callable[[Random], Callable[[Random, A], Awaitable[None]]],
    seed: int,
    numbers: list[int],
    port: str,
) -> Counter[str]:
    tried: Counter[str] = Counter()
    for number in numbers:
        random = Random(f"{seed}:{number}")
        attack = choose(random)
        arena.forget()
        try:
            async with asyncio.timeout(_ATTACK_S_MAX):
                await attack(random, arena)
                await arena.check()
        except Exception as error:
            raise Found(_report(seed, number, attack.__name__, arena.sent, port)) from error
        tried[attack.__name__] += 1
    return tried


def _report(seed: int, number: int, name: str, sent: list[bytes], port: str) -> str:
    lines = [
        f"attack {number} ({name}) of round {seed}; repeat it with",
        f"  python -m tests.fuzz --port {port} --replay {seed}:{number}",
        "or, if it takes what came before it, with",
        f"  python -m tests.fuzz --port {port} --replay {seed} --attacks {number + 1}",
        "it sent:",
    ]
    for data in sent[-20:]:
        lines.append(f"  {len(data):6d} bytes {data[:_PRINTED_BYTES_MAX].hex()}")
    return "\n".join(lines)


def described(found: Found) -> str:
    return "".join(traceback.format_exception(found.__cause__)) + "\n" + str(found)
