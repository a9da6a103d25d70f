"""A progress bar for what takes over two seconds, and only where a person watches."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SHOW_AFTER_S = 2.0


@contextmanager
def progress(label: str, *, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with how much was done since the last call."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console  # slow to load, and needed on a terminal only
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=total)
    timer = threading.Timer(_SHOW_AFTER_S, bar.start)
    timer.start()
    try:
        yield lambda amount: bar.advance(task, amount)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
