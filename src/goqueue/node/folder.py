"""The data folder as the node and what is above it see it (`goqueue.log.folder`)."""

from __future__ import annotations

from goqueue.log.folder import LOCK, LOGS, TRASH, DataFolder, FolderLocked, partition_folder

__all__ = ["LOCK", "LOGS", "TRASH", "DataFolder", "FolderLocked", "partition_folder"]
