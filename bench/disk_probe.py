"""What the disk can do by itself: the ceilings that the log's lines are held against."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

from msgspec import Struct

from bench.line import percentile, require
from bench.workspace import fresh_folder

_FILE_BYTES_MAX = 64 * 1024 * 1024  # as long as a segment


class SyncRate(Struct):
    mb_per_s: float
    latencies_ms: list[float]  # in rising order

    def latency_ms(self, share: float) -> float:
        return percentile(self.latencies_ms, share)


def sync_rate(parent: Path, group_bytes: int, duration_s: float) -> SyncRate:
    """Append a group, fdatasync, and again: what a group commit does, without the broker."""
    group = Random(group_bytes).randbytes(group_bytes)
    latencies: list[float] = []
    with fresh_folder(parent) as folder:
        spent_s = 0.0
        while spent_s < duration_s:
            path = folder / "groups"
            count, used_s = _write_groups(path, group, duration_s - spent_s, latencies)
            spent_s += used_s
            _verify(path, group, count)
            path.unlink()
    return SyncRate(len(latencies) * group_bytes / spent_s / 1e6, sorted(latencies))


def _write_groups(path: Path, group: bytes, duration_s: float, latencies: list[float]) -> tuple[int, float]:
    """Fill one file, until it is full or the time is up."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        count = 0
        started = now = time.perf_counter()
        while count * len(group) < _FILE_BYTES_MAX and now - started < duration_s:
            require(os.write(descriptor, group) == len(group), "the disk took only a part of a write")
            os.fdatasync(descriptor)
            before, now = now, time.perf_counter()
            latencies.append((now - before) * 1_000)
            count += 1
        return count, now - started
    finally:
        os.close(descriptor)


def write_time_s(path: Path, chunks: list[bytes]) -> float:
    """A plain loop of os.write, without any sync."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        started = time.perf_counter()
        for chunk in chunks:
            os.write(descriptor, chunk)
        elapsed = time.perf_counter() - started
    finally:
        os.close(descriptor)
    with path.open("rb") as file:
        for chunk in chunks:
            require(file.read(len(chunk)) == chunk, "the probe's file has other bytes than were written")
        require(not file.read(1), "the probe's file is longer than what was written")
    return elapsed


def _verify(path: Path, group: bytes, count: int) -> None:
    with path.open("rb") as file:
        for _ in range(count):
            require(file.read(len(group)) == group, "the probe's file has other bytes than were written")
        require(not file.read(1), "the probe's file is longer than what was written")
