"""What the demo is doing, a line at a time, and how long each step took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    what: str
    begun_s: float
    ended_s: float


class Steps:
    def __init__(self) -> None:
        self.done: list[Step] = []
        self._begun = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begun

    @contextmanager
    def step(self, name: str, what: str) -> Iterator[None]:
        """Said when it begins; steps may lie within others."""
        begun_s = self.elapsed_s
        self.say(name, what)
        yield
        self.done.append(Step(name, what, begun_s, self.elapsed_s))

    def say(self, name: str, text: str) -> None:
        print(f"{self.elapsed_s:6.1f} s  {name:9} {text}", flush=True)
