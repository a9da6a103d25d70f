"""Deliberate mistakes that the simulation must find. Each shows that a checker can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

from goqueue.log import recovery
from goqueue.log.index import SegmentIndex
from goqueue.log.scan import Scanner
from goqueue.model.names import METADATA_TOPIC
from goqueue.node.commit import GroupCommit


@contextmanager
def skip_fsync() -> Iterator[None]:
    """`acks=all` is answered without waiting for the fsync. (The metadata log is spared, or no broker would
    even come up again.)"""
    wait = GroupCommit.wait

    async def hasty(self: GroupCommit, end: int, *, since: float | None = None) -> None:
        if METADATA_TOPIC in self.folder:
            await wait(self, end, since=since)

    with patch.object(GroupCommit, "wait", hasty):
        yield


@contextmanager
def skip_recovery_crc() -> Iterator[None]:
    """Recovery believes every batch whose frame looks right."""

    class Trusting(Scanner):
        def __init__(self, *args: object, **options: object) -> None:
            options["check_crc"] = False
            super().__init__(*args, **options)  # type: ignore[arg-type]  # handed on as they came

    with patch.object(recovery, "Scanner", Trusting):
        yield


@contextmanager
def drop_time_index() -> Iterator[None]:
    """No entry is ever written to a time index."""
    with patch.object(SegmentIndex, "_note_time", lambda self: None):
        yield


MUTANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "skip-fsync": skip_fsync,
    "skip-recovery-crc": skip_recovery_crc,
    "drop-time-index": drop_time_index,
}
