"""How much of everything: the default run ends within six minutes, the quick one within one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Scale:
    round_count: int
    round_s: float  # of one side of one round
    log_round_count: int  # these are short, so there are many
    log_chunk_count: int  # batches of 1 MB per side and round
    batch_requests_max: int  # of 1,000 messages, per round
    recovery_bytes: int
    start_count: int


FULL = Scale(
    round_count=7,
    round_s=1.0,
    log_round_count=24,
    log_chunk_count=64,
    batch_requests_max=100,
    recovery_bytes=1024**3,
    start_count=4,
)
QUICK = Scale(
    round_count=3,
    round_s=0.3,
    log_round_count=6,
    log_chunk_count=32,
    batch_requests_max=30,
    recovery_bytes=96 * 1024**2,
    start_count=1,
)


@dataclass(frozen=True, slots=True)
class Run:
    """What every group of lines gets."""

    folder: Path
    scale: Scale
