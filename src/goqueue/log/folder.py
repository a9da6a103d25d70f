"""The data folder: its layout, and the lock that keeps two brokers, or a broker and a job, from sharing it.

    lock                                 held while a broker or a job works on it, with its pid and host inside
    logs/{topic}/{partition}/            segments, indexes, checkpoint
    quarantine/logs/{topic}/{partition}/ what recovery took out of a log, kept for a person to look at
    trash/                               deleted topics until their files are gone

The lock belongs to the open file, not to its content, so the kernel drops it with the process: after kill -9,
or as PID 1 in a new container, the next start finds it free however old the text inside is.
"""

from __future__ import annotations

import fcntl
import os
import socket
from typing import IO

from goqueue.model.errors import StorageError

LOGS = "logs"
TRASH = "trash"
LOCK = "lock"


class FolderLocked(StorageError):
    """Another broker, or a job, holds the data folder."""


def partition_folder(topic: str, partition: int) -> str:
    return f"{LOGS}/{topic}/{partition}"


class DataFolder:
    """A folder that this process alone may write to."""

    def __init__(self, root: str, lock: IO[str]) -> None:
        self.root = root
        self._lock = lock

    @classmethod
    def lock(cls, root: str) -> DataFolder:
        try:
            os.makedirs(root, exist_ok=True)
            file = open(os.path.join(root, LOCK), "a+", encoding="utf-8")  # noqa: SIM115 - held until release
        except OSError as error:
            raise StorageError(f"the data folder {root!r} cannot be used: {error}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise FolderLocked(
                f"the data folder {root!r} is held by {holder}; stop it or use another folder"
            ) from None
        file.truncate(0)
        file.write(f"pid {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        return cls(root, file)

    def release(self) -> None:
        self._lock.close()
