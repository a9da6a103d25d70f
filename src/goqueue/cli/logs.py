"""Logs for machines and people: one line per event on stderr, `ts level logger event key=value`."""

from __future__ import annotations

import logging
import sys

from goqueue.model.duration import format_instant


class LineFormatter(logging.Formatter):
    """Keeps an event on one line whatever is in it, so that nothing from outside can forge a second one."""

    def format(self, record: logging.LogRecord) -> str:
        moment = format_instant(int(record.created * 1_000))
        line = f"{moment} {record.levelname.lower()} {record.name} {record.getMessage()}"
        if record.exc_info:
            line += f" traceback={self.formatException(record.exc_info)}"
        return line.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def start_logging(level: str) -> None:
    out = logging.StreamHandler(sys.stderr)
    out.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[out], force=True)
    # It warns of every malformed request: strangers must not be able to fill the operator's log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
