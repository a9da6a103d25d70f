"""`python -m tests.chaos.load NAME ...`: one load as a process of its own, until its input ends or says `stop`.

It says `ready` when its topics are there and its clients run, and `done` when it has come to its end. What each client did and whether
it came to its own end is in the history, and where it waits if it does not.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.chaos.history import Op, Phase, Recorder
from tests.chaos.load.final_reading import final_works
from tests.chaos.load.job import END_S, Job, Work, create_topics
from tests.chaos.load.registry import FINAL, LOADS

_HERE: Final = str(Path(__file__).parent)


def main() -> int:
    options = _options()
    with Path(options.history).open("ab") as file:
        recorder = Recorder(file, options.name)
        http = options.http.split(",")
        job = Job(options.kafka, http, options.replicas, options.seed, recorder, threading.Event())
        clients = [Client(job, name, work) for name, work in _works(job, options.name).items()]
        print("ready", flush=True)
        sys.stdin.readline()
        job.stopping.set()
        deadline = time.monotonic() + END_S
        for client in clients:
            client.wait(deadline)
    print("done", flush=True)
    return 0


def _works(job: Job, name: str) -> Mapping[str, Work]:
    if name == FINAL:
        return final_works(job)
    create_topics(job, LOADS[name].topics)
    return LOADS[name].works(job)


class Client:
    """A work in its thread; its begin and its end are in the history."""

    def __init__(self, job: Job, name: str, work: Work) -> None:
        self._recorder = job.recorder
        self._name = name
        self._number = job.recorder.invoke(name, Op.WORK)
        self._thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        self._thread.start()

    def wait(self, deadline: float) -> None:
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._told(Phase.UNKNOWN, f"it still waits: {' < '.join(self._frames())}")

    def _run(self, work: Work) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it is told in the history
            traceback.print_exc()
            self._told(Phase.FAIL, f"{type(error).__name__}: {error}"[:300])
        else:
            self._told(Phase.OK, "")

    def _frames(self) -> Iterator[str]:
        """Where it is in our code, the innermost first."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(_HERE):
                yield f"{Path(code.co_filename).stem}.{code.co_name}:{frame.f_lineno}"
            frame = frame.f_back

    def _told(self, phase: Phase, note: str) -> None:
        self._recorder.record(self._name, Op.WORK, phase, number=self._number, note=note)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.load", description=__doc__)
    parser.add_argument("name", choices=[*LOADS, FINAL])
    parser.add_argument("--kafka", required=True, help="HOST:PORT,...")
    parser.add_argument("--http", required=True, help="HOST:PORT,...")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--history", required=True, help="the file to write")
    return parser.parse_args()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Taking down clients whose brokers are gone can take for ever, and all that counts is written.
    os._exit(code)
