"""The real disk: files under one root folder, through plain system calls."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence

from goqueue.log.disk import Entry, NotCached, Usage

_CHUNKS_MAX = 512  # below Linux's IOV_MAX of 1,024
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_CANNOT_TELL = {errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS}


class OsFile:
    """An open descriptor. It is closed when the last reference goes, so a reader in another thread can
    never find its descriptor number reused for a different file."""

    def __init__(self, path: str, *, create: bool) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._descriptor = os.open(path, flags, 0o644)

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            os.close(descriptor)

    def append(self, chunks: Sequence[bytes | memoryview]) -> None:
        written = os.writev(self._descriptor, chunks[:_CHUNKS_MAX])
        if written < sum(map(len, chunks)):
            self._append_rest(chunks, written)

    def _append_rest(self, chunks: Sequence[bytes | memoryview], written: int) -> None:
        """The kernel may take less than it is given; what follows the first `written` bytes is still to do."""
        pending = memoryview(b"".join(chunks))[written:]
        while pending:
            pending = pending[os.write(self._descriptor, pending) :]

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes:
        if cached_only and _NOWAIT:
            return self._read_cached(position, size)
        data = os.pread(self._descriptor, size, position)
        while 0 < len(data) < size:
            more = os.pread(self._descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def _read_cached(self, position: int, size: int) -> bytes:
        buffer = bytearray(size)
        try:
            count = os.preadv(self._descriptor, [buffer], position, _NOWAIT)
        except BlockingIOError:
            raise NotCached from None
        except OSError as error:
            if error.errno in _CANNOT_TELL:  # this file system cannot tell; a thread is always right
                raise NotCached from None
            raise
        if count < size and position + count < self.size():
            raise NotCached  # the rest is on the device
        return bytes(memoryview(buffer)[:count])

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        os.fdatasync(self._descriptor)


class OsDisk:
    """A folder of the operating system."""

    def __init__(self, root: str) -> None:
        self._root = root
        os.makedirs(root, exist_ok=True)

    def open(self, path: str, *, create: bool = False) -> OsFile:
        return OsFile(self._at(path), create=create)

    def list(self, path: str) -> list[Entry]:
        try:
            with os.scandir(self._at(path)) as found:
                entries = [Entry(item.name, item.stat().st_size, item.is_dir()) for item in found]
        except FileNotFoundError:
            return []
        return sorted(entries)

    def make_dir(self, path: str) -> None:
        os.makedirs(self._at(path), exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(self._at(source), self._at(target))

    def remove(self, path: str) -> None:
        try:
            os.unlink(self._at(path))
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(self._at(path))
        except FileNotFoundError:
            return

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def usage(self) -> Usage:
        """As an unprivileged writer sees it: blocks kept back for root do not count as free."""
        stat = os.statvfs(self._root)
        used = stat.f_blocks - stat.f_bfree
        return Usage((used + stat.f_bavail) * stat.f_frsize, stat.f_bavail * stat.f_frsize)

    def _at(self, path: str) -> str:
        return os.path.join(self._root, path)
