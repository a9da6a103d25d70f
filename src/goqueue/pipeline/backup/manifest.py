"""What a backup consists of (docs/format/backup.md).

A backup is one manifest: for every partition its files, each as a row of pieces. Pieces are named by what is in them, so
that writing one twice is writing it once, backups share all that has not changed, and a failed or repeated task leaves
nothing worse than a piece that no manifest names. To commit a backup is to create its manifest; none is ever changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec import Struct
from pyarrow import fs

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.lake.store import Store
from goqueue.pipeline.span import Place

MANIFESTS = "manifests"
PIECES = "pieces"
PIECE_COUNT_MAX = 2_000_000
INLINE_BYTES_MAX = 2_048  # a checkpoint of a few producers; an object of its own would cost a request
_VERSION = 1


class Piece(Struct, frozen=True):
    """Bytes of a file: in the manifest itself, or in an object named by their SHA-256."""

    size: int
    digest: str = ""
    content: bytes = b""

    @property
    def name(self) -> str:
        """Of its object, from the place on."""
        return f"{PIECES}/{self.digest[:2]}/{self.digest}"


class StoredFile(Struct, frozen=True):
    """A small file of a partition's folder, as it was."""

    name: str
    size: int
    pieces: tuple[Piece, ...]


class StoredSegment(Struct, frozen=True):
    """Offsets [base_offset, end_offset) of a log, in `size` bytes."""

    base_offset: int
    end_offset: int
    size: int
    modified_ns: int  # of the source's file: one that has the same size and time is not read again
    pieces: tuple[Piece, ...]
    is_damaged: bool = False  # it was so in the source, and is kept as it is

    @property
    def name(self) -> str:
        return f"{self.base_offset:020d}.log"


class StoredPartition(Struct, frozen=True):
    topic: str
    partition: int
    end_offset: int
    segments: tuple[StoredSegment, ...] = ()
    files: tuple[StoredFile, ...] = ()

    @property
    def place(self) -> Place:
        return Place(self.topic, self.partition)

    @property
    def size(self) -> int:
        return sum(one.size for one in self.all_files())

    def all_files(self) -> list[StoredFile | StoredSegment]:
        return [*self.segments, *self.files]

    def pieces(self) -> list[Piece]:
        return [piece for one in self.all_files() for piece in one.pieces]


class Manifest(Struct, frozen=True):
    number: int
    taken_ms: int  # the moment of the cut: everything that was written before is in it
    source: str
    is_full: bool  # everything was read, whatever earlier backups have
    new_bytes: int  # of the pieces that this backup was the first to have
    partitions: tuple[StoredPartition, ...]
    version: int = _VERSION

    @property
    def size(self) -> int:
        return sum(one.size for one in self.partitions)


class Backups:
    """The place where the backups of one data folder are."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.store = Store(uri.rstrip("/"))

    def numbers(self) -> list[int]:
        """Of the backups that are there, rising."""
        names = (name.removesuffix(".json") for name in self.store.names(MANIFESTS))
        return [int(name) for name in names if name.isdigit()]

    def load(self, number: int) -> Manifest:
        content = self.store.read(_name(number))
        if content is None:
            known = ", ".join(map(str, self.numbers())) or "none"
            raise PipelineError(f"there is no backup {number} in {self.uri!r}; there are: {known}")
        where = self.store.path(_name(number))
        try:
            manifest = msgspec.json.decode(content, type=Manifest)
        except msgspec.DecodeError as error:
            raise PipelineError(
                f"{where} is no manifest of a backup: {error}; remove it to go on with the others"
            ) from None
        if manifest.version != _VERSION:
            raise PipelineError(f"{where} has version {manifest.version}; this program reads {_VERSION}")
        if manifest.number != number:
            raise PipelineError(f"{where} is the manifest of backup {manifest.number}")
        return manifest

    def newest(self) -> Manifest | None:
        numbers = self.numbers()
        return self.load(numbers[-1]) if numbers else None

    def commit(self, manifest: Manifest) -> None:
        count = sum(len(one.pieces()) for one in manifest.partitions)
        if count > PIECE_COUNT_MAX:
            raise PipelineError(f"the backup would have {count} pieces; the limit is {PIECE_COUNT_MAX}")
        content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        try:
            self.store.create(_name(manifest.number), content)
        except FileExistsError:
            raise PipelineError(
                f"another backup to {self.uri!r} has become number {manifest.number} meanwhile; run again"
            ) from None
        except OSError as error:
            raise self._unwritable(error) from None

    def remove(self, number: int) -> None:
        self.store.remove([_name(number)])

    @contextmanager
    def held(self, *, alone: bool = False) -> Iterator[None]:
        """While backups are taken or read, or one is alone with them to remove some. An object store and some shared disks
        have no locks: there it is the user who must not do both at once."""
        if not self.store.is_local:
            yield
            return
        descriptor = os.open(self.store.path(""), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            doing = (
                "a backup there is being taken or read" if alone else "old backups there are being removed"
            )
            raise PipelineError(f"{self.uri!r} is in use: {doing}; run again when that has ended") from None
        except OSError:  # no locks there
            pass
        try:
            yield
        finally:
            os.close(descriptor)

    # ---------------------------------------------------------------- pieces

    def piece_sizes(self) -> dict[str, int]:
        """Of all objects that are there, by name: pieces, and beginnings of some that were never finished."""
        root = self.store.path("")
        infos = self.store.filesystem.get_file_info(
            fs.FileSelector(self.store.path(PIECES), allow_not_found=True, recursive=True)
        )
        return {
            info.path.removeprefix(f"{root}/"): int(info.size)
            for info in infos
            if info.type is fs.FileType.File
        }

    def put(self, content: bytes, *, distrusts: bool) -> tuple[Piece, int]:
        """The piece that holds these bytes, and how many of them were written. One that is there already is looked
        into only where it is distrusted."""
        if len(content) <= INLINE_BYTES_MAX:
            return Piece(len(content), content=content), 0
        piece = Piece(len(content), hashlib.sha256(content).hexdigest())
        if self._size(piece) is not None:
            if self._size(piece) == piece.size and (not distrusts or self.problem(piece) is None):
                return piece, 0
            self.store.remove([piece.name])
        try:
            self.store.create(piece.name, content)
        except FileExistsError:  # another task was first, with the same bytes
            return piece, 0
        except OSError as error:
            raise self._unwritable(error) from None
        return piece, piece.size

    def get(self, piece: Piece) -> bytes:
        """Checked. PipelineError where it is gone or not what it was."""
        if not piece.digest:
            return piece.content
        content = self.store.read(piece.name)
        where = self.store.path(piece.name)
        if content is None:
            raise PipelineError(f"{where} is missing")
        if len(content) != piece.size or hashlib.sha256(content).hexdigest() != piece.digest:
            raise PipelineError(f"{where} is damaged: its content is not what its name says")
        return content

    def problem(self, piece: Piece) -> str | None:
        try:
            self.get(piece)
        except PipelineError as error:
            return str(error)
        return None

    def path(self, piece: Piece) -> str:
        return self.store.path(piece.name)

    def _unwritable(self, error: OSError) -> PipelineError:
        return PipelineError(f"the backup cannot be written to {self.uri!r}: {error}")

    def _size(self, piece: Piece) -> int | None:
        found = self.store.filesystem.get_file_info(self.path(piece))
        return int(found.size) if found.type is fs.FileType.File else None


def _name(number: int) -> str:
    return f"{MANIFESTS}/{number:010d}.json"
