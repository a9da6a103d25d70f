"""Who runs a pipeline and how it is doing, in files of its checkpoint folder.

    lock       held by the process that runs the pipeline; the kernel drops it with the process, so that a pid that was used
               again, or a crash, is never taken for a running pipeline
    run.json   that process, the state of every query, and how it ended
    stop       written by `stop`: the id of the run that is to end

`status` and `stop` only need the folder: they work from another machine that has it mounted, and without Spark.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, Literal

import msgspec

from goqueue.model.duration import format_instant
from goqueue.pipeline.declarative.files import write_atomically
from goqueue.pipeline.errors import PipelineError

LOCK, RUN, STOP = "lock", "run.json", "stop"
_CLAIM_S_MAX: Final = 2.0  # `status` holds the lock for a moment when it looks
_POLL_S: Final = 0.1


class QueryState(msgspec.Struct, kw_only=True):
    """The last micro-batch of a query, and totals of this run."""

    kind: Literal["stream", "batch"]
    state: Literal["waiting", "running", "finished", "stopped", "failed"] = "waiting"
    restarts: int = 0
    batch_id: int | None = None
    at: str | None = None
    duration_ms: int | None = None
    rows_in: int = 0
    rows_out: int | None = None
    rows_in_total: int = 0
    rows_out_total: int = 0
    lag: dict[str, int] = {}
    offsets: dict[str, dict[str, int]] = {}


class RunState(msgspec.Struct, kw_only=True):
    """One run of a pipeline."""

    pipeline: str
    run_id: str
    pid: int
    host: str
    started_at: str
    updated_at: str
    state: Literal["starting", "running", "stopping", "stopped", "finished", "failed"] = "starting"
    reason: str | None = None
    metrics: str | None = None
    queries: dict[str, QueryState] = {}

    @property
    def is_over(self) -> bool:
        return self.state in ("stopped", "finished", "failed")


class Claim:
    """A checkpoint folder that this process alone runs. Release it when everything has ended."""

    def __init__(self, folder: Path, pipeline: str) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock: IO[str] = open(folder / LOCK, "a+")  # noqa: SIM115 - held until release
        except OSError as error:
            raise PipelineError(f"the checkpoint folder {folder} cannot be used: {error.strerror}") from error
        if not _wait_until(lambda: _try_lock(self._lock), _CLAIM_S_MAX):
            self._lock.close()
            running = read_run(folder)
            who = f"process {running.pid} on {running.host}" if running is not None else "another process"
            raise PipelineError(
                f"pipeline {pipeline} is run by {who}; stop it first: goqueue pipeline stop FILE"
            )
        (folder / STOP).unlink(missing_ok=True)
        now = _now()
        self.run = RunState(
            pipeline=pipeline,
            run_id=uuid.uuid4().hex,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=now,
            updated_at=now,
        )
        self.save()

    def save(self) -> None:
        self.run.updated_at = _now()
        write_atomically(self.folder / RUN, msgspec.json.format(msgspec.json.encode(self.run)))

    def is_asked_to_stop(self) -> bool:
        try:
            return (self.folder / STOP).read_text().strip() == self.run.run_id
        except FileNotFoundError:
            return False

    def release(self) -> None:
        (self.folder / STOP).unlink(missing_ok=True)
        self._lock.close()


def is_running(folder: Path) -> bool:
    """Whether a process holds the folder now."""
    try:
        with open(folder / LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def read_run(folder: Path) -> RunState | None:
    """The last run; None if there was none."""
    file = folder / RUN
    try:
        return msgspec.json.decode(file.read_bytes(), type=RunState)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise PipelineError(f"{file} is no state of a pipeline: {error}") from None


def ask_to_stop(folder: Path, *, timeout_s: float) -> bool:
    """True when the run has ended, or there was none; False when it goes on after that time."""
    running = read_run(folder)
    if running is None or not is_running(folder):
        return True
    write_atomically(folder / STOP, running.run_id.encode())
    return _wait_until(lambda: not is_running(folder), timeout_s)


def _try_lock(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_until(is_done: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not is_done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _now() -> str:
    return format_instant(time.time_ns() // 1_000_000)
