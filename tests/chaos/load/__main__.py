"""`python -m tests.chaos.load NAME ...`: one load as a process of its own, until its input ends or says `stop`.

It says `ready` when its topics are there and its clients run, and `done` when it has come to its end.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import traceback
from pathlib import Path

from tests.chaos.history import Recorder
from tests.chaos.load.final_reading import read_all
from tests.chaos.load.job import DRAIN_S, Job, Work, create_topics
from tests.chaos.load.registry import FINAL, LOADS

_END_S = DRAIN_S + 120.0


def main() -> int:
    options = _options()
    with Path(options.history).open("ab") as file:
        recorder = Recorder(file, options.name)
        stopping = threading.Event()
        http = options.http.split(",")
        job = Job(options.kafka, http, options.replicas, options.seed, recorder, stopping)
        return _read_final(job) if options.name == FINAL else _run(job, options.name)


def _read_final(job: Job) -> int:
    print("ready", flush=True)
    read_all(job)
    print("done", flush=True)
    return 0


def _run(job: Job, name: str) -> int:
    load = LOADS[name]
    create_topics(job, load.topics)
    failures: list[str] = []
    threads = [
        threading.Thread(target=_supervised, args=(work, failures), daemon=True) for work in load.works(job)
    ]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    sys.stdin.readline()
    job.stopping.set()
    for thread in threads:
        thread.join(_END_S)
        if thread.is_alive():
            failures.append(f"{thread.name} did not end")
    for text in failures:
        print(text, file=sys.stderr)
    print("done", flush=True)
    return 1 if failures else 0


def _supervised(work: Work, failures: list[str]) -> None:
    try:
        work()
    except Exception:  # noqa: BLE001 - whoever started the load is told
        failures.append(traceback.format_exc())


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
    os._exit(
        code
    )  # taking down clients whose brokers are gone can take for ever, and all that counts is written
