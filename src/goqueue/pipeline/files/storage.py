"""Where segment files lie: a local folder through plain system calls, anything else through pyarrow's filesystems.

Files are read by ranges only, so that an object store serves as well as a disk. Local files are read rather than mapped:
a mapped file that its broker cuts off kills the process that looks at it.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyarrow import fs

from goqueue.pipeline.errors import OptionError

_LOCKS = "/proc/locks"
_LOCK = "lock"
_OBJECT_STORES = frozenset({"abfs", "gcs", "s3"})


class Listed(NamedTuple):
    """One entry of a folder. What the listing of a file says changes when its content does."""

    name: str
    size: int
    is_dir: bool
    modified_ns: int


class Reading(Protocol):
    """One open file."""

    def size(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes, fewer at the end of the file."""


class Storage(Protocol):
    """A tree of files that is only read. Paths are relative to its root and use "/"; every failure is an OSError."""

    @property
    def piece_bytes(self) -> int:
        """How much to read at once."""

    @property
    def keeps_folders(self) -> bool:
        """Whether a folder without files exists, as it does everywhere but in an object store."""

    def list(self, path: str) -> list[Listed] | None:
        """The entries of a folder by name; None where there is no such folder."""

    def open(self, path: str) -> Reading: ...

    def locate(self, path: str) -> str:
        """The path as its user would write it."""

    def is_held(self) -> bool:
        """Whether a broker runs on this folder, as far as this machine can tell."""


def open_storage(path: str, filesystem: fs.FileSystem | None = None) -> Storage:
    """A local path or a URI; with a filesystem, a path in that."""
    if filesystem is not None:
        return ArrowStorage(filesystem, path, f"{filesystem.type_name}:{path}")
    if "://" not in path:
        return LocalStorage(path)
    try:
        found, root = fs.FileSystem.from_uri(path)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise OptionError(f"{path!r} is no place that files can be read from: {error}") from None
    return LocalStorage(root) if found.type_name == "local" else ArrowStorage(found, root, path)


def content_of(storage: Storage, path: str) -> bytes | None:
    """A small file whole; None where there is none."""
    try:
        file = storage.open(path)
    except FileNotFoundError:
        return None
    return file.read(0, file.size())


class LocalStorage:
    keeps_folders = True
    piece_bytes = 1024 * 1024  # stays in the processor's cache until it is decoded; 4 MiB are a third slower

    def __init__(self, root: str) -> None:
        self._root = root

    def list(self, path: str) -> list[Listed] | None:
        try:
            with os.scandir(self.locate(path)) as found:
                return sorted(listed for entry in found if (listed := _listed(entry)) is not None)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, path: str) -> LocalReading:
        return LocalReading(self.locate(path))

    def locate(self, path: str) -> str:
        return os.path.join(self._root, path)

    def is_held(self) -> bool:
        """By the kernel's list of locks, because trying the lock could keep a broker from starting at that moment. A broker
        in another container or on another host is not in it."""
        try:
            inode = os.stat(self.locate(_LOCK)).st_ino
        except FileNotFoundError:
            return False
        try:
            with open(_LOCKS, encoding="ascii") as locks:
                return any(_is_lock_on(line, inode) for line in locks)
        except FileNotFoundError:
            return _is_locked(self.locate(_LOCK))


def _listed(entry: os.DirEntry[str]) -> Listed | None:
    try:
        status = entry.stat()
    except FileNotFoundError:  # it went while the folder was listed
        return None
    return Listed(entry.name, status.st_size, stat.S_ISDIR(status.st_mode), status.st_mtime_ns)


def _is_lock_on(line: str, inode: int) -> bool:
    """By the inode alone: not every file system gives both sides the same device number."""
    fields = line.split()
    return fields[1:4] == ["FLOCK", "ADVISORY", "WRITE"] and fields[5].endswith(f":{inode}")


def _is_locked(path: str) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class LocalReading:
    """Closed when the last reference goes."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            os.close(descriptor)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        while 0 < len(data) < size:
            more = os.pread(self._descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data


class ArrowStorage:
    piece_bytes = 8 * 1024 * 1024  # an object store answers a request after some tens of milliseconds

    def __init__(self, filesystem: fs.FileSystem, root: str, shown: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._shown = shown.rstrip("/")

    @property
    def keeps_folders(self) -> bool:
        return self._filesystem.type_name not in _OBJECT_STORES

    def list(self, path: str) -> list[Listed] | None:
        at = self._at(path)
        found = self._filesystem.get_file_info(fs.FileSelector(at, allow_not_found=True))
        if not found and self._filesystem.get_file_info(at).type != fs.FileType.Directory:
            return None
        return sorted(
            Listed(info.base_name, info.size or 0, info.type == fs.FileType.Directory, info.mtime_ns or 0)
            for info in found
        )

    def open(self, path: str) -> ArrowReading:
        return ArrowReading(self._filesystem.open_input_file(self._at(path)))

    def locate(self, path: str) -> str:
        return f"{self._shown}/{path}"

    def is_held(self) -> bool:
        return False  # nobody runs a broker on what is not a disk

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root


class ArrowReading:
    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._size = int(file.size())

    def size(self) -> int:
        return self._size

    def read(self, position: int, size: int) -> bytes:
        wanted = min(size, self._size - position)
        return bytes(self._file.read_at(wanted, position)) if wanted > 0 else b""
