"""A compacted segment on its way into the place of those it replaces.

It is complete under a name that says which offsets it has, `{base}-{end}.swap`; putting it in place takes several steps,
which the next start repeats if they are interrupted.
"""

from __future__ import annotations

import re

from goqueue.log.disk import Disk
from goqueue.log.segment import INDEX_SUFFIXES, LOG_NAME, LOG_SUFFIX, remove_segment, segment_prefix

SWAP_NAME = re.compile(r"(\d{20})-(\d{20})\.swap")


def swap_path(folder: str, base: int, end: int) -> str:
    return f"{folder}/{base:020d}-{end:020d}.swap"


def finish_swap(disk: Disk, folder: str, base: int, end: int) -> None:
    """Put a compacted segment in the place of those it replaces. May be repeated after a crash anywhere."""
    for entry in disk.list(folder):
        match = LOG_NAME.fullmatch(entry.name)
        if match and base < int(match[1]) < end:
            remove_segment(disk, segment_prefix(folder, int(match[1])))
    prefix = segment_prefix(folder, base)
    for suffix in INDEX_SUFFIXES:
        disk.remove(prefix + suffix)
    disk.sync_dir(folder)  # the replaced ones are gone before the swap file stops saying so
    disk.rename(swap_path(folder, base, end), prefix + LOG_SUFFIX)
    disk.sync_dir(folder)
