"""Probe: how fast the disk makes groups of bytes durable, by the size of the group."""

from __future__ import annotations

from bench.disk_probe import SyncRate, sync_rate
from bench.line import Line, percentile, spread
from bench.scale import Run

_SIZES = (4 * 1024, 64 * 1024, 256 * 1024, 1024 * 1024)


def run(run: Run) -> list[Line]:
    taken: dict[int, list[SyncRate]] = {size: [] for size in _SIZES}
    for _ in range(run.scale.round_count):
        for size in _SIZES:
            taken[size].append(sync_rate(run.folder, size, run.scale.round_s / 3))
    return [_line(size, rates) for size, rates in taken.items()]


def _line(size: int, rates: list[SyncRate]) -> Line:
    latencies = sorted(latency for rate in rates for latency in rate.latencies_ms)
    return Line(
        f"probe.fdatasync.{size // 1024}k",
        f"write + fdatasync of {size // 1024} KB groups",
        "MB/s",
        spread([rate.mb_per_s for rate in rates]),
        details={f"p{share:g}_ms": percentile(latencies, share / 100) for share in (50, 99, 99.9)},
    )
