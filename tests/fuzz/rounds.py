"""Rounds of attacks on one broker. A round is repeated by its seed, one of its attacks by seed and number."""

from __future__ import annotations

import asyncio
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import uvloop
from tests.fuzz.attacks import chosen
from tests.fuzz.target import Target

_ATTACK_S_MAX = 120.0
_PRINTED_BYTES_MAX = 1_000


class Found(Exception):
    """An attack that the broker did not survive; the text says how to repeat it."""


def run_round(seed: int, *, attack_count: int, only: int | None = None) -> Counter[str]:
    """How often each attack was tried. Even seeds run on uvloop, odd ones on asyncio's own loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop if seed % 2 == 0 else None
    with asyncio.Runner(loop_factory=factory) as runner, tempfile.TemporaryDirectory() as folder:
        return runner.run(
            _round(seed, Path(folder), [only] if only is not None else list(range(attack_count)))
        )


async def _round(seed: int, folder: Path, numbers: list[int]) -> Counter[str]:
    tried: Counter[str] = Counter()
    async with Target(folder) as target:
        for number in numbers:
            random = Random(f"{seed}:{number}")
            attack = chosen(random)
            target.sent.clear()
            try:
                async with asyncio.timeout(_ATTACK_S_MAX):
                    await attack(random, target)
                    await target.check()
            except Exception as error:
                raise Found(_report(seed, number, attack.__name__, target.sent)) from error
            tried[attack.__name__] += 1
    return tried


def _report(seed: int, number: int, name: str, sent: list[bytes]) -> str:
    lines = [
        f"attack {number} ({name}) of round {seed}; repeat it with",
        f"  python -m tests.fuzz --replay {seed}:{number}",
        "or, if it takes what came before it, with",
        f"  python -m tests.fuzz --replay {seed} --attacks {number + 1}",
        "it sent:",
    ]
    for data in sent[-20:]:
        lines.append(f"  {len(data):6d} bytes {data[:_PRINTED_BYTES_MAX].hex()}")
    return "\n".join(lines)


def described(found: Found) -> str:
    return "".join(traceback.format_exception(found.__cause__)) + "\n" + str(found)
