"""What the program says while it works."""

from __future__ import annotations

import sys
import time


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
