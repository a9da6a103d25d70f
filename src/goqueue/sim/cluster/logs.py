"""The nodes' logs in a replay: every line begins with the virtual time and the host."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from goqueue.sim.life import current_life
from goqueue.sim.loop import SimLoop


@contextmanager
def stamped(loop: SimLoop) -> Iterator[None]:
    make = logging.getLogRecordFactory()

    def stamp(*args: Any, **options: Any) -> logging.LogRecord:  # as logging hands them over
        record = make(*args, **options)
        life = current_life.get()
        record.msg = f"{loop.time():9.3f} {life.host if life else '-'}: {record.msg}"
        return record

    logging.setLogRecordFactory(stamp)
    try:
        yield
    finally:
        logging.setLogRecordFactory(make)
