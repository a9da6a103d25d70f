"""A backup read as if it were the data folder: `logs/{topic}/{partition}/` with the files that were there.

So whatever reads a folder of segment files reads a backup: queries, restores, the check of a backup. The newest one by its
place, an earlier one by `place@number`.
"""

from __future__ import annotations

import re

from pyarrow import fs

from goqueue.pipeline.backup.manifest import MANIFESTS, Backups, Manifest, Piece, StoredPartition
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.files.storage import (
    ArrowStorage,
    Listed,
    LocalStorage,
    Reading,
    Storage,
    open_storage,
)
from goqueue.pipeline.files.view import LOGS
from goqueue.pipeline.span import Place

_NUMBERED = re.compile(r"(.+)@(\d{1,10})")


def open_tree(path: str, filesystem: fs.FileSystem | None = None) -> Storage:
    """What is at a path: a data folder, a copy of one, or backups."""
    storage = open_storage(path, filesystem)
    if filesystem is not None or storage.list(LOGS) is not None:
        return storage
    if storage.list(MANIFESTS):
        backups = Backups(path)
        return BackupTree(backups, backups.load(backups.numbers()[-1]))
    numbered = _NUMBERED.fullmatch(path)
    if numbered and open_storage(numbered[1]).list(MANIFESTS):
        backups = Backups(numbered[1])
        return BackupTree(backups, backups.load(int(numbered[2])))
    return storage


class BackupTree:
    """The `Storage` of one backup."""

    keeps_folders = True

    def __init__(self, backups: Backups, manifest: Manifest) -> None:
        self._backups = backups
        self._number = manifest.number
        self._partitions = {one.place: one for one in manifest.partitions}
        self.piece_bytes = (LocalStorage if backups.store.is_local else ArrowStorage).piece_bytes

    def list(self, path: str) -> list[Listed] | None:
        parts = path.strip("/").split("/")
        if parts == [LOGS]:
            return [Listed(name, 0, True, 0) for name in sorted({place.topic for place in self._partitions})]
        if parts[0] != LOGS or len(parts) > 3:
            return None
        if len(parts) == 2:
            indexes = [place.partition for place in self._partitions if place.topic == parts[1]]
            return sorted(Listed(str(index), 0, True, 0) for index in indexes) or None
        found = self._partition(parts[1], parts[2])
        if found is None:
            return None
        segments = [Listed(one.name, one.size, False, one.modified_ns) for one in found.segments]
        return sorted([*segments, *(Listed(one.name, one.size, False, 0) for one in found.files)])

    def open(self, path: str) -> Reading:
        *folder, name = path.strip("/").split("/")
        found = self._partition(folder[1], folder[2]) if len(folder) == 3 and folder[0] == LOGS else None
        for one in found.all_files() if found else ():
            if one.name == name:
                return PiecedReading(self._backups, one.pieces)
        raise FileNotFoundError(self.locate(path))

    def locate(self, path: str) -> str:
        return f"{self._backups.uri}@{self._number}/{path}"

    def is_held(self) -> bool:
        return False  # a backup never changes

    def _partition(self, topic: str, index: str) -> StoredPartition | None:
        return self._partitions.get(Place(topic, int(index))) if index.isdecimal() else None


class PiecedReading:
    """A file that lies in pieces. The one that was read last stays open."""

    def __init__(self, backups: Backups, pieces: tuple[Piece, ...]) -> None:
        self._backups = backups
        self._pieces = pieces
        self._size = sum(piece.size for piece in pieces)
        self._opened: tuple[Piece, Reading] | None = None

    def size(self) -> int:
        return self._size

    def read(self, position: int, size: int) -> bytes:
        parts: list[bytes] = []
        start, end = 0, position + size
        for piece in self._pieces:
            if start < end and position < start + piece.size:
                at = max(position - start, 0)
                parts.append(self._read(piece, at, min(end - start, piece.size) - at))
            start += piece.size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read(self, piece: Piece, at: int, size: int) -> bytes:
        if not piece.digest:
            return piece.content[at : at + size]
        if self._opened is None or self._opened[0] is not piece:
            self._opened = (piece, self._open(piece))
        content = self._opened[1].read(at, size)
        if len(content) < size:
            raise OSError(f"{self._backups.path(piece)} has fewer bytes than its backup says")
        return content

    def _open(self, piece: Piece) -> Reading:
        try:
            root, _, name = self._backups.path(piece).rpartition("/")
            return open_storage(root, _remote(self._backups)).open(name)
        except FileNotFoundError as error:
            raise PipelineError(f"a piece of the backup is missing: {error}") from None


def _remote(backups: Backups) -> fs.FileSystem | None:
    return None if backups.store.is_local else backups.store.filesystem
