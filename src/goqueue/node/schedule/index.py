"""The index of a schedule on disk (docs/format/schedule.md): a cache, so that a start reads sixteen bytes for each delayed
record and not the record, and so that what is due in weeks need not be in memory.

One file has the whole state as of an offset of the log, but for the buckets beyond the wheel: each of these has a file that
only grows, and the first file says how much of it counts. Whatever is missing or damaged is read off the log again.
All of this blocks: call it from a thread.
"""

from __future__ import annotations

import re
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
from crc32c import crc32c
from msgspec import Struct

from goqueue.core.schedule.events import Fired, Firing, Taken
from goqueue.core.schedule.recurring import Recurring
from goqueue.core.schedule.states import PAGE_IDS
from goqueue.core.schedule.wheel import BLOCK_NUMBERS, Due, Part
from goqueue.log.disk import Disk, File

FILE_NAME: Final = "schedule.index"
_MAGIC: Final = b"goqueue-schedule 2\n"
_LENGTH: Final = struct.Struct("<I")
_RUN: Final = struct.Struct("<II")  # bytes that follow, and their checksum
_BUCKET_NAME: Final = re.compile(r"schedule\.(\d+)\.far")
_WRITE_BYTES: Final = 1024 * 1024
_NUMBER_BYTES: Final = 8


class Section(Struct, frozen=True, array_like=True):
    level: int
    slot: int
    number_count: int


class Bucket(Struct, frozen=True, array_like=True):
    """A file of records that are due beyond the wheel."""

    bucket: int
    record_count: int
    size_bytes: int


class Meta(Struct, frozen=True):
    end: int  # everything before this offset of the log is in here
    ripe: list[tuple[int, int]]
    firing: Firing | None
    last_fired: Fired | None
    taken: list[Taken]
    recurring: list[Recurring]
    cancelled_count: int
    buckets: list[Bucket]
    sections: list[Section]
    pages: list[int]
    epoch: int | None = None  # of the last batch before `end`; None in files of before there were any


class Capture(Struct):
    """A schedule at one instant. `parts` are what the wheel has in memory, `far` what is to leave it now."""

    end: int
    epoch: int | None  # of the last batch before that
    ripe: list[Due]
    firing: Firing | None
    last_fired: Fired | None
    taken: list[Taken]
    recurring: list[Recurring]
    cancelled_count: int
    parts: list[Part]
    pages: list[tuple[int, bytes]]
    parked: dict[int, int] = {}
    far: list[Part] = []


class IndexFile:
    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._sizes: dict[int, int] = {}  # of the files of parked buckets

    def save(self, capture: Capture) -> None:
        """OSError where it could not be: then what was saved before still counts."""
        sizes = dict(self._sizes)
        for part in capture.far:
            sizes[part.slot] = self._append_far(part, sizes.get(part.slot, 0))
        sizes = {bucket: size for bucket, size in sizes.items() if bucket in capture.parked}
        if capture.far:
            self._disk.sync_dir(self._folder)  # the index names these files
        self._replace(_chunks(capture, sizes))
        self._sizes = sizes
        self._remove_others()

    def load(self, is_believed: Callable[[int, int | None], bool]) -> Capture | None:
        """None where there is none that can be believed: then the log has to be read from its start. `is_believed` says
        whether the log has, or has had, what was in it up to an offset, and a leader's epoch there."""
        try:
            capture, meta = _Reading(self._disk.open(f"{self._folder}/{FILE_NAME}")).run()
        except (FileNotFoundError, ValueError):
            meta = None
        if meta is None or not is_believed(meta.end, meta.epoch) or not self._has(meta.buckets):
            self.remove()  # nor shall it be by a later start, when the log is longer and has forgotten more
            self._remove_others()
            return None
        self._sizes = {one.bucket: one.size_bytes for one in meta.buckets}
        self._remove_others()
        return capture

    def remove(self) -> None:
        """For good when this returns. What is left of it goes with the next one."""
        path = f"{self._folder}/{FILE_NAME}"
        try:
            self._disk.open(path)
        except FileNotFoundError:
            return
        self._disk.remove(path)
        self._disk.sync_dir(self._folder)

    def read_bucket(self, bucket: int) -> list[array[int]] | None:
        """What is parked there, in order; None if it is damaged."""
        size = self._sizes.get(bucket, 0)
        try:
            content = self._disk.open(self._path(bucket)).read(0, size)
        except FileNotFoundError:
            return None
        blocks: list[array[int]] = []
        position = 0
        while position + _RUN.size <= len(content) == size:
            length, crc = _RUN.unpack_from(content, position)
            position += _RUN.size
            run = memoryview(content)[position : position + length]
            if len(run) < length or crc32c(run) != crc:
                return None
            blocks += [
                _numbers(run[at : at + BLOCK_NUMBERS * _NUMBER_BYTES])
                for at in range(0, length, BLOCK_NUMBERS * _NUMBER_BYTES)
            ]
            position += length
        return blocks if position == size else None

    def _append_far(self, part: Part, size: int) -> int:
        """Behind what counts: an attempt that failed may have left something there."""
        file = self._disk.open(self._path(part.slot), create=True)
        if file.size() != size:
            file.truncate(size)
        content = b"".join(map(_bytes, part.blocks))
        file.append([_RUN.pack(len(content), crc32c(content)), content])
        file.sync()
        return size + _RUN.size + len(content)

    def _replace(self, chunks: Iterable[bytes]) -> None:
        path = f"{self._folder}/{FILE_NAME}"
        temporary = f"{path}.tmp"
        self._disk.remove(temporary)
        file = self._disk.open(temporary, create=True)
        crc, pending, size = 0, [], 0
        for chunk in chunks:
            crc = crc32c(chunk, crc)
            pending.append(chunk)
            size += len(chunk)
            if size >= _WRITE_BYTES:
                file.append(pending)
                pending, size = [], 0
        file.append([*pending, _LENGTH.pack(crc)])
        file.sync()
        self._disk.rename(temporary, path)
        self._disk.sync_dir(self._folder)

    def _has(self, buckets: Iterable[Bucket]) -> bool:
        sizes = {entry.name: entry.size for entry in self._disk.list(self._folder)}
        return all(sizes.get(_name(one.bucket), -1) >= one.size_bytes for one in buckets)

    def _remove_others(self) -> None:
        for entry in self._disk.list(self._folder):
            match = _BUCKET_NAME.fullmatch(entry.name)
            if match and int(match[1]) not in self._sizes:
                self._disk.remove(f"{self._folder}/{entry.name}")

    def _path(self, bucket: int) -> str:
        return f"{self._folder}/{_name(bucket)}"


class _Reading:
    """One pass over the file; ValueError where it is not what was written."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._position = 0
        self._crc = 0

    def run(self) -> tuple[Capture, Meta]:
        if self._take(len(_MAGIC)) != _MAGIC:
            raise ValueError("another format")
        (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
        meta = msgspec.msgpack.decode(self._take(length), type=Meta)
        parts = [Part(one.level, one.slot, self._blocks(one.number_count)) for one in meta.sections]
        pages = [(number, self._take(PAGE_IDS)) for number in meta.pages]
        crc = self._crc
        if _LENGTH.unpack(self._take(_LENGTH.size)) != (crc,) or self._position != self._file.size():
            raise ValueError("the checksum does not match")
        capture = Capture(
            meta.end,
            meta.epoch,
            [Due(*one) for one in meta.ripe],
            meta.firing,
            meta.last_fired,
            meta.taken,
            meta.recurring,
            meta.cancelled_count,
            parts,
            pages,
            {one.bucket: one.record_count for one in meta.buckets},
        )
        return capture, meta

    def _blocks(self, number_count: int) -> list[array[int]]:
        return [
            _numbers(self._take(min(BLOCK_NUMBERS, number_count - at) * _NUMBER_BYTES))
            for at in range(0, number_count, BLOCK_NUMBERS)
        ]

    def _take(self, size: int) -> bytes:
        data = self._file.read(self._position, size)
        if len(data) < size:
            raise ValueError("the file is too short")
        self._position += size
        self._crc = crc32c(data, self._crc)
        return data


def _chunks(capture: Capture, sizes: dict[int, int]) -> Iterator[bytes]:
    meta = msgspec.msgpack.encode(
        Meta(
            capture.end,
            [(one.due_ms, one.id) for one in capture.ripe],
            capture.firing,
            capture.last_fired,
            capture.taken,
            capture.recurring,
            capture.cancelled_count,
            [Bucket(bucket, count, sizes[bucket]) for bucket, count in capture.parked.items()],
            [Section(part.level, part.slot, sum(map(len, part.blocks))) for part in capture.parts],
            [number for number, _ in capture.pages],
            capture.epoch,
        )
    )
    yield _MAGIC + _LENGTH.pack(len(meta)) + meta
    for part in capture.parts:
        yield from map(_bytes, part.blocks)
    for _, page in capture.pages:
        yield page


def _bytes(block: array[int]) -> bytes:
    if sys.byteorder == "big":
        block = block[:]
        block.byteswap()
    return block.tobytes()


def _numbers(data: bytes | memoryview) -> array[int]:
    block = array("q")
    block.frombytes(data)
    if sys.byteorder == "big":
        block.byteswap()
    return block


def _name(bucket: int) -> str:
    return f"schedule.{bucket}.far"
