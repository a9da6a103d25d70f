"""Where a run keeps its files: a fresh folder on the disk of this repository, gone when the run ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.line import BenchFailed

ROOT = Path(__file__).parent
FREE_BYTES_MIN = 10 * 1024**3  # the largest line keeps about 6 GB
_MEMORY_ONLY = {"tmpfs", "ramfs", "devtmpfs"}


@contextmanager
def workspace() -> Iterator[Path]:
    """A folder on a real file system with enough room."""
    kind = file_system_of(ROOT)
    if kind in _MEMORY_ONLY:
        raise BenchFailed(f"{ROOT} is on {kind}, which is memory; run from a checkout on a disk")
    free = shutil.disk_usage(ROOT).free
    if free < FREE_BYTES_MIN:
        raise BenchFailed(f"{free} bytes are free on the disk; the benchmark needs {FREE_BYTES_MIN}")
    folder = Path(tempfile.mkdtemp(prefix=".work-", dir=ROOT))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_folder(parent: Path) -> Iterator[Path]:
    """For one line or one round; its dirty pages go with its files, so the next round starts with none of them."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def file_system_of(path: Path) -> str:
    """The type of the file system that holds a path, from the longest mount point above it."""
    best, kind = "", "unknown"
    target = os.path.realpath(path)
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        mount, _, source = line.partition(" - ")
        point = mount.split()[4]
        if (target == point or target.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, source.split()[0]
    return kind
