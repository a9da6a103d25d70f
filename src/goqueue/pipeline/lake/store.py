"""A folder on any filesystem that pyarrow knows: this machine's, or an object store.

What is written whole here is on disk when the call returns, where the filesystem is this machine's. An object store has no
rename and no exclusive creation; there `move` copies, and two writers of one name are noticed most of the time only.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from contextlib import suppress

from pyarrow import fs

from goqueue.pipeline.errors import PipelineError


class Store:
    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.filesystem, self._root = _open(uri)
        self.is_local = isinstance(self.filesystem, fs.LocalFileSystem)

    def path(self, name: str) -> str:
        """For those that take a filesystem and a path."""
        return f"{self._root}/{name}" if name else self._root

    def read(self, name: str) -> bytes | None:
        """None where there is no such file."""
        try:
            with self.filesystem.open_input_stream(self.path(name)) as stream:
                content: bytes = stream.read()
                return content
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """The files right in a folder, sorted; none where there is no such folder."""
        return self._list(folder, fs.FileType.File)

    def folders(self, folder: str) -> list[str]:
        """As `names`, of the folders."""
        return self._list(folder, fs.FileType.Directory)

    def _list(self, folder: str, kind: fs.FileType) -> list[str]:
        infos = self.filesystem.get_file_info(fs.FileSelector(self.path(folder), allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type is kind)

    def exists(self, name: str) -> bool:
        return bool(self.filesystem.get_file_info(self.path(name)).type is not fs.FileType.NotFound)

    def make_folder(self, name: str) -> None:
        self.filesystem.create_dir(self.path(name), recursive=True)

    def create(self, name: str, content: bytes) -> None:
        """A file that must not exist yet. It appears whole or not at all; FileExistsError if somebody was first."""
        folder = name.rpartition("/")[0]
        self.make_folder(folder)
        if not self.is_local:
            if self.exists(name):
                raise FileExistsError(self.path(name))
            with self.filesystem.open_output_stream(self.path(name)) as stream:
                stream.write(content)
            return
        temporary = self.path(f"{folder}/.{uuid.uuid4().hex}")
        try:
            with open(temporary, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, self.path(name))
        finally:
            os.unlink(temporary)
        self._sync_folder(folder)

    def sync(self, name: str) -> None:
        """What was written to the file through `filesystem` survives a power cut from here on."""
        if not self.is_local:
            return
        with open(self.path(name), "rb") as file:
            os.fsync(file.fileno())

    def move(self, source: str, target: str) -> None:
        """No error if that was done before, or is done by somebody else meanwhile."""
        self.make_folder(target.rpartition("/")[0])
        try:
            self.filesystem.move(self.path(source), self.path(target))
        except OSError:
            if self.exists(source):
                raise
            if not self.exists(target):
                raise PipelineError(
                    f"{self.path(source)} is gone; it was to become {self.path(target)}"
                ) from None

    def remove(self, names: Iterable[str]) -> None:
        """No error for those that are gone already."""
        for name in names:
            with suppress(FileNotFoundError):
                self.filesystem.delete_file(self.path(name))

    def remove_folder(self, name: str) -> None:
        """No error if it is gone already."""
        with suppress(FileNotFoundError):
            self.filesystem.delete_dir(self.path(name))

    def sync_folders(self, names: Iterable[str]) -> None:
        """The names in the folders of these files survive a power cut from here on."""
        for folder in sorted({name.rpartition("/")[0] for name in names}):
            self._sync_folder(folder)

    def _sync_folder(self, name: str) -> None:
        if not self.is_local:
            return
        handle = os.open(self.path(name), os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _open(uri: str) -> tuple[fs.FileSystem, str]:
    if "://" not in uri:
        return fs.LocalFileSystem(), os.path.abspath(uri)
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except (ValueError, OSError) as error:
        raise PipelineError(f"{uri!r} is no folder that can be opened: {error}") from None
    return filesystem, path.rstrip("/")
