"""Memory of the processes that work through batches of some MiB each.

What the C library frees it soon gives back to the kernel, which clears each page before it gives it out again. With buffers of
this size that is about a sixth of the time in which rows are decoded. So a task's process keeps what it has had once.
"""

from __future__ import annotations

import ctypes
from functools import cache

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of glibc's malloc.h
_BLOCK_BYTES_MAX = 32 * 1024 * 1024  # larger ones are the kernel's as before; glibc takes no more
_KEPT_BYTES_MAX = 128 * 1024 * 1024


@cache
def keep_freed_memory() -> bool:
    """Whether this C library can be told to. Once for a process; for those that are the pipeline's own."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _BLOCK_BYTES_MAX) and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES_MAX))
