"""How a simulated run went."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    violations: list[str]
    acked_count: int
    read_count: int
    lives: list[str]  # the fault and the end of each
    virtual_s: float
    workload: str = "rest"
