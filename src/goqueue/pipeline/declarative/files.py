"""Small files that others read while they are written."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(file: Path, data: bytes) -> None:
    """A reader finds the old content or the new, never half of it."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    part.write_bytes(data)
    os.replace(part, file)
