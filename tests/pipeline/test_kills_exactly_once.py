"""Consume, transform, produce through Spark while broker and driver are killed with kill -9: output equals input.

`make pipeline-soak KILLS=20` kills as often as one likes; a few kills are part of every test run.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from tests.support.broker import Broker
from tests.support.kafka_clients import confluent
from tests.support.sink_target import Target
from tests.support.spark_cluster import only_in_soak
from tests.support.spark_driver import SOURCE, STARTED, TARGET, changed
from tests.support.spark_processes import Tree, command_of, python_command

KILLS = int(os.environ.get("GOQUEUE_PIPELINE_KILLS", "2"))
SEED = int(os.environ.get("GOQUEUE_PIPELINE_SEED", "5"))
PARTITION_COUNT = 3
PACE_S = 0.02  # between records of the producer
KINDS = ("broker", "driver", "both")
MOMENTS = ("any", "written", "logged", "committed")
SMALL_BATCH, LARGE_BATCH = 2_000, 100_000
WAIT_S = 280.0  # for a step that takes seconds


class Producing:
    """An idempotent producer that never stops by itself; it knows what was acknowledged."""

    def __init__(self, kafka: str) -> None:
        settings = {"bootstrap.servers": kafka, "enable.idempotence": True, "log_level": 0, "linger.ms": 5}
        self._producer = confluent.Producer(settings | {"metadata.recovery.strategy": "none"})
        self.acked: list[bytes] = []
        self.failures: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> list[bytes]:
        """Every value that is in the topic."""
        self._is_over.set()
        self._thread.join(WAIT_S)
        assert self._producer.flush(WAIT_S) == 0
        assert self.failures == []
        return self.acked

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(PACE_S):
            for _ in range(10):
                number += 1
                value = b"order-%07d" % number
                self._producer.produce(
                    SOURCE, value, b"k%d" % (number % 50), number % PARTITION_COUNT, on_delivery=self._note
                )
            self._producer.poll(0)

    def _note(self, error: object, record: object) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acked.append(record.value())  # type: ignore[attr-defined] # of the client's own kind


@dataclass
class Pipeline:
    """A broker on fixed ports and a driver with a checkpoint, each of which can be killed and started again."""

    folder: Path
    temporary: str  # what killed drivers leave behind; its name is short, for it holds sockets
    broker: Broker
    driver: Tree
    kills: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)  # what the kills of drivers left behind

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def target(self) -> Target:
        return Target(self.broker, TARGET, PARTITION_COUNT)

    def kill(self, kind: str) -> None:
        """`broker`, `driver` or `both`; what is killed is started again at once."""
        self.kills[kind] += 1
        kafka, http = self.broker.kafka, self.broker.address
        if kind != "broker":
            self.driver.kill9()
            self.left[self._found()] += 1
        if kind != "driver":
            self.broker.kill9()
            self.broker = Broker(self.folder / "data", kafka=kafka, http=http)
        if kind != "broker":
            self.driver = self.start(SMALL_BATCH)

    def start(self, offsets_max: int) -> Tree:
        return _driver(self.broker.kafka, self.folder, self.temporary, offsets_max)

    def count(self, kind: str) -> int:
        """Batches in the checkpoint: `offsets` are logged first, `commits` when a batch is done."""
        return max((int(path.name) + 1 for path in (self.checkpoint / kind).glob("[0-9]*")), default=0)

    def await_batch(self) -> None:
        """The next one, so that every kill meets a query at work."""
        count = self.count("commits")
        self._await(lambda: self.count("commits") > count, f"no batch after {count} comes")

    def await_moment(self, moment: str, rng: random.Random) -> None:
        """Where in a batch the kill is to be. What it finds then is a matter of milliseconds."""
        match moment:
            case "logged":
                count = self.count("offsets")
                self._await(lambda: self.count("offsets") > count, "no batch begins")
            case "written":
                self._await(lambda: not self.target.is_settled, "no task writes")
            case "committed":
                ends = self.target.ends_of_both()[0]
                self._await(lambda: self.target.ends_of_both()[0] != ends, "nothing is committed")
            case _:
                time.sleep(rng.uniform(0.0, 1.0))

    def await_copy(self, count: int) -> None:
        """Until every record has come; a driver that takes more at a time catches up with what was sent meanwhile."""
        if count - len(self.target.rows()) > 20 * SMALL_BATCH:
            self.driver.kill9()
            self.driver = self.start(LARGE_BATCH)
        self._await(lambda: self._has(count), "the copy is not complete")

    def _has(self, count: int) -> bool:
        """The ends tell cheaply that it cannot be yet: markers have offsets, too."""
        target = self.target
        return sum(target.ends_of_both()[0]) >= count and target.is_settled and len(target.rows()) >= count

    def _await(self, is_so: Callable[[], bool], failure: str) -> None:
        """However long it takes, as long as batch after batch is done."""
        done, deadline = -1, 0.0
        while not is_so():
            if self.count("commits") != done:
                done, deadline = self.count("commits"), time.monotonic() + WAIT_S
            assert self.driver.is_running, self.driver.output.text()[-3_000:]
            assert time.monotonic() < deadline, f"{failure}: {self._evidence()}"
            time.sleep(0.005)

    def _found(self) -> str:
        if self.count("offsets") == self.count("commits"):
            return "between batches"
        return "batch begun" if self.target.is_settled else "batch begun and written to"

    def _evidence(self) -> str:
        ends = [Target(self.broker, name, PARTITION_COUNT).ends_of_both() for name in (SOURCE, TARGET)]
        stacks = [
            subprocess.run(["jstack", str(pid)], capture_output=True, text=True, timeout=60).stdout
            for pid in self.driver.descendants()
            if which("jstack") and "java" in command_of(pid)
        ]
        begin = max(0, "".join(stacks).find('"stream execution thread'))
        return (
            f"{self.count('offsets')} batches begun, {self.count('commits')} done, kills {self.kills}, ends (committed, all) "
            f"{ends}, {self.driver.output.text()[-1_000:]}\n{''.join(stacks)[begin : begin + 6_000]}"
        )


def _driver(kafka: str, folder: Path, temporary: str, offsets_max: int = SMALL_BATCH) -> Tree:
    args = (kafka, str(folder / "checkpoint"), str(offsets_max))
    command = python_command("tests.support.spark_driver", *args)
    return Tree(command, name="driver", env={"TMPDIR": temporary})


@contextmanager
def running(folder: Path) -> Iterator[Pipeline]:
    with TemporaryDirectory(prefix="gq-", ignore_cleanup_errors=True) as temporary:
        broker = Broker(folder / "data")
        for name in (SOURCE, TARGET):
            Target(broker, name, PARTITION_COUNT).create()
        pipeline = Pipeline(folder, temporary, broker, _driver(broker.kafka, folder, temporary))
        try:
            yield pipeline
        finally:
            pipeline.driver.kill9()
            pipeline.broker.kill9()


@only_in_soak
def test_output_equals_input_after_kills_of_broker_and_driver(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    begun_s = time.monotonic()
    with running(tmp_path) as pipeline:
        producing = Producing(pipeline.broker.kafka)
        producing.start()
        pipeline.driver.output.wait_for(STARTED, timeout_s=WAIT_S)
        for number in range(KILLS):
            pipeline.await_batch()
            print(
                f"{time.monotonic() - begun_s:.0f} s: {pipeline.count('commits')} batches, {pipeline.kills}",
                flush=True,
            )
            pipeline.await_moment(MOMENTS[number % len(MOMENTS)], rng)
            pipeline.kill(KINDS[number] if number < len(KINDS) else rng.choice(KINDS))
        sent = producing.finish()
        pipeline.await_copy(len(sent))
        copied = pipeline.target.values()
        print(
            f"{time.monotonic() - begun_s:.0f} s: killed {pipeline.kills}, which left {pipeline.left}; "
            f"{pipeline.count('commits')} batches, {len(sent)} records sent, {len(copied)} copied"
        )
        assert copied == sorted(map(changed, sent))
        assert Target(pipeline.broker, SOURCE, PARTITION_COUNT).values() == sorted(sent)
