"""The port between the log and whatever holds its bytes.

Two implementations: `OsDisk` (the real one) and `goqueue.sim.disk.SimDisk` (which loses what was never
synced, tears writes, flips bits and fails on command). The contract both keep, and that the log relies on:

- Paths are relative to the disk's root and use "/".
- What `append` wrote is visible to `read` at once, but survives a power cut only after `File.sync`.
- A created, renamed or removed name survives a power cut only after `sync_dir` of its directory. The
  directory that `make_dir` creates needs `sync_dir` of its parent.
- `rename` replaces the target atomically.
- A `File` stays readable after its name is removed or replaced, until the last reference to it is gone.
- Every failure is an `OSError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    name: str
    size: int
    is_dir: bool


class Usage(NamedTuple):
    total_bytes: int
    free_bytes: int


class NotCached(Exception):
    """The bytes are not in memory; ask again from a thread that may block."""


class File(Protocol):
    """One open file. Safe to read from any thread; written by one owner."""

    def append(self, chunks: Sequence[bytes | memoryview]) -> None:
        """Write all chunks at the end. After an error the length is undefined until `truncate`."""

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes:
        """Up to `size` bytes, fewer at the end of the file. With `cached_only`, raises `NotCached` rather
        than wait for the device."""

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """Make the content durable. Blocks; call it from a thread."""


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and appending; FileNotFoundError unless it exists or `create` is set."""

    def list(self, path: str) -> list[Entry]:
        """Entries of a directory sorted by name; empty if there is no such directory."""

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents; no error if it exists."""

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; no error if it is gone already."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it; no error if it is gone already."""

    def sync_dir(self, path: str) -> None: ...

    def usage(self) -> Usage: ...


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Put `content` at `path` so that a crash leaves the old or the new content, never a mixture."""
    temporary = f"{path}.tmp"
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    file.append([content])
    file.sync()
    disk.rename(temporary, path)
    disk.sync_dir(path.rpartition("/")[0])


def read_file(disk: Disk, path: str) -> bytes | None:
    """The whole content, or None where there is no such file."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    return file.read(0, file.size())
