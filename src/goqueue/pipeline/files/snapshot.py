"""A partition's folder as it was listed, for recovery to work on: what it mends happens in memory and never in the folder.

So a reader of files sees exactly what a broker would serve that started on them, by the code that the broker runs, and
leaves the folder as it is.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

from goqueue.log.checkpoint import FILE_NAME as CHECKPOINT
from goqueue.log.checkpoint import Checkpoint
from goqueue.log.disk import Entry, File, Usage
from goqueue.log.segment import INDEX_SUFFIXES, LOG_SUFFIX, segment_prefix
from goqueue.pipeline.files.storage import Listed, Reading, Storage

_SEGMENT_NAME = re.compile(r"(\d{20})\.log")
_SWAP_NAME = re.compile(r"(\d{20})-(\d{20})\.swap")
_UNFINISHED = (".cleaned", ".tmp")
_SYNC_FAILED = "sync-failed"  # asks a start to write segments again; a reader cannot


class _Node:
    """What a name stands for: a stored file, perhaps cut, or content that recovery wrote."""

    __slots__ = ("content", "limit", "path")

    def __init__(self, path: str = "", limit: int | None = None) -> None:
        self.path = path
        self.limit = limit  # None: as long as it is when it is opened
        self.content = bytearray()

    @property
    def size(self) -> int:
        return len(self.content) if not self.path else self.limit or 0


class FolderSnapshot:
    """The `Disk` below one log."""

    def __init__(
        self, storage: Storage, folder: str, listing: Iterable[Listed], checkpoint: bytes | None
    ) -> None:
        self._storage = storage
        self._folder = folder
        self._nodes: dict[str, _Node] = {}
        self.listed: dict[int, Listed] = {}  # the file of each segment, by base offset
        swaps: list[tuple[int, int, Listed]] = []
        for entry in listing:
            if entry.is_dir or entry.name == _SYNC_FAILED or entry.name.endswith(_UNFINISHED):
                continue
            if match := _SWAP_NAME.fullmatch(entry.name):
                swaps.append((int(match[1]), int(match[2]), entry))
            elif match := _SEGMENT_NAME.fullmatch(entry.name):
                self._add_segment(int(match[1]), entry)
            else:
                self._nodes[entry.name] = _Node(f"{folder}/{entry.name}")
        for base, end, entry in swaps:
            self._finish_swap(base, end, entry)
        self._nodes.pop(CHECKPOINT, None)
        if checkpoint is not None:
            self._nodes[CHECKPOINT] = _Node()
            self._nodes[CHECKPOINT].content += checkpoint

    def _add_segment(self, base: int, entry: Listed) -> None:
        self.listed[base] = entry
        self._nodes[_name(base)] = _Node(f"{self._folder}/{entry.name}", entry.size)

    def _finish_swap(self, base: int, end: int, entry: Listed) -> None:
        """A compacted segment, complete: it stands for all that it replaces."""
        for replaced in [one for one in self.listed if base <= one < end]:
            self._drop_segment(replaced)
        self._add_segment(base, entry)

    def _drop_segment(self, base: int) -> None:
        del self.listed[base]
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
            self._nodes.pop(_name(base, suffix), None)

    def end_at(self, checkpoint: Checkpoint) -> None:
        """Leave out what was written after the checkpoint."""
        for base in [one for one in self.listed if one > checkpoint.recovery_segment]:
            self._drop_segment(base)
        active = self._nodes.get(_name(checkpoint.recovery_segment))
        if active is not None:
            active.limit = min(active.size, checkpoint.recovery_position)

    # ---------------------------------------------------------------- Disk

    def open(self, path: str, *, create: bool = False) -> File:
        node = self._nodes.get(self._key(path))
        if node is None and not create:
            raise FileNotFoundError(path)
        if node is None:
            node = _Node()
            if path.startswith(f"{self._folder}/"):  # what goes to quarantine is nowhere
                self._nodes[self._key(path)] = node
        return _StoredFile(self._storage, node) if node.path else _WrittenFile(node)

    def list(self, path: str) -> list[Entry]:
        if path != self._folder:
            return []
        return sorted(Entry(name, node.size, False) for name, node in self._nodes.items())

    def make_dir(self, path: str) -> None:
        return

    def rename(self, source: str, target: str) -> None:
        self._nodes[self._key(target)] = self._nodes.pop(self._key(source))

    def remove(self, path: str) -> None:
        self._nodes.pop(self._key(path), None)

    def remove_tree(self, path: str) -> None:
        raise io.UnsupportedOperation(f"{path} is only read")

    def sync_dir(self, path: str) -> None:
        return

    def usage(self) -> Usage:
        raise io.UnsupportedOperation(f"{self._folder} is only read")

    def _key(self, path: str) -> str:
        return path.removeprefix(f"{self._folder}/")


def _name(base: int, suffix: str = LOG_SUFFIX) -> str:
    return segment_prefix("", base).removeprefix("/") + suffix


class _StoredFile:
    """Opened when it is first read. A segment that has shrunk since it was listed has been replaced."""

    def __init__(self, storage: Storage, node: _Node) -> None:
        self._storage = storage
        self._node = node
        self._reading: Reading | None = None

    def _opened(self) -> Reading:
        if self._reading is None:
            reading = self._storage.open(self._node.path)
            if reading.size() < self._node.size:
                raise FileNotFoundError(f"{self._node.path} is not what it was when it was listed")
            self._reading = reading
        return self._reading

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes:
        wanted = min(size, self.size() - position)
        return self._opened().read(position, wanted) if wanted > 0 else b""

    def size(self) -> int:
        return self._opened().size() if self._node.limit is None else self._node.limit

    def truncate(self, size: int) -> None:
        self._node.limit = min(size, self.size())

    def append(self, chunks: Sequence[bytes | memoryview]) -> None:
        raise io.UnsupportedOperation(f"{self._node.path} is only read")

    def sync(self) -> None:
        return


class _WrittenFile:
    """Small: a checkpoint or an index, or a torn tail on its way to nowhere."""

    def __init__(self, node: _Node) -> None:
        self._node = node

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes:
        return bytes(self._node.content[position : position + size])

    def size(self) -> int:
        return len(self._node.content)

    def truncate(self, size: int) -> None:
        del self._node.content[size:]

    def append(self, chunks: Sequence[bytes | memoryview]) -> None:
        for chunk in chunks:
            self._node.content += chunk

    def sync(self) -> None:
        return
