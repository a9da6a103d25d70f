"""A pipeline while it runs, with Spark played by a fake: starts in turn, restarts, stops, and the end of Java."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from goqueue.pipeline.declarative import pipeline_run
from goqueue.pipeline.declarative.document import read_yaml
from goqueue.pipeline.declarative.pipeline_run import RESTARTS_MAX, PipelineRun, RunOptions
from goqueue.pipeline.declarative.running import run_pipelines
from goqueue.pipeline.declarative.spec import Definition, Trigger
from goqueue.pipeline.declarative.state import is_running, read_run
from goqueue.pipeline.errors import PipelineError

LATE = RuntimeError("Caused by: org.apache.spark.SparkException: Python worker failed to connect back.")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeQuery:
    """A streaming query whose end the test decides."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.isActive = True
        self.status = {"message": "Waiting for data to arrive", "isTriggerActive": False}
        self.error: Exception | None = None
        self.stop_count = 0

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.stop_count += 1
        self.isActive = False

    def fail(self, error: Exception) -> None:
        self.isActive, self.error = False, error


class FakeWriter:
    def __init__(self, start: Callable[[str], FakeQuery]) -> None:
        self._start = start
        self._name = ""

    def queryName(self, name: str) -> FakeWriter:
        self._name = name.rpartition("/")[2]
        return self

    def option(self, name: str, value: str) -> FakeWriter:
        return self

    def trigger(self, **when: object) -> FakeWriter:
        return self

    def start(self) -> FakeQuery:
        return self._start(self._name)


def _built(definition: Definition) -> SimpleNamespace:
    """Every sink a stream."""
    queries = [
        SimpleNamespace(
            name=sink.name,
            sink=sink,
            rows=None,
            sources=tuple(definition.spec.sources),
            trigger=Trigger(),
            is_stream=True,
        )
        for sink in definition.spec.sinks
    ]
    return SimpleNamespace(queries=queries, inputs=lambda view: ())


class Stage:
    """A pipeline of two streams, without Spark."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.started: list[FakeQuery] = []
        names = ("one", "two")
        sinks = "".join(f"  - {{name: {name}, from: a, console: true}}\n" for name in names)
        text = f"name: p\nsources: [{{name: a, path: a, stream: true, schema: x INT}}]\nsinks:\n{sinks}"
        definition = read_yaml(folder / "p.yaml", text, {})
        built = _built(definition)
        monkeypatch.setattr(pipeline_run, "build", lambda spark, definition: built)
        monkeypatch.setattr(pipeline_run, "counted", lambda rows: rows)
        monkeypatch.setattr(pipeline_run, "stream_writer", lambda *_: FakeWriter(self._start))
        monkeypatch.setattr(pipeline_run, "time", self.clock)
        streams = SimpleNamespace(addListener=lambda _: None, removeListener=lambda _: None)
        spark: Any = SimpleNamespace(streams=streams)
        spark.newSession = lambda: spark
        self.run = PipelineRun(spark, definition, RunOptions(grace_s=10))
        self.run.prepare()
        self.run.start()

    def poll(self, times: int = 1) -> None:
        for _ in range(times):
            self.run.poll()

    def states(self) -> list[str]:
        return [query.state for query in self.run.state.queries.values()]

    def _start(self, name: str) -> FakeQuery:
        self.started.append(FakeQuery(name))
        return self.started[-1]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    found = Stage(tmp_path, monkeypatch)
    yield found
    found.run.close()


def test_streams_start_one_after_the_other_has_its_offsets(stage: Stage) -> None:
    stage.poll()
    stage.started[0].status["message"] = "Initializing sources"
    stage.poll(3)
    assert [query.name for query in stage.started] == ["one"]
    stage.started[0].status["message"] = "Processing new data"
    stage.poll()
    assert [query.name for query in stage.started] == ["one", "two"]
    assert stage.states() == ["running", "running"]


def test_stream_that_takes_long_to_settle_does_not_hold_up_the_next_for_ever(stage: Stage) -> None:
    stage.poll()
    stage.started[0].status["message"] = "Initializing sources"
    stage.clock.now += 31
    stage.poll()
    assert len(stage.started) == 2


def test_run_is_finished_when_all_its_streams_are(stage: Stage) -> None:
    stage.poll(2)
    for query in stage.started:
        query.isActive = False
    stage.poll()
    assert (stage.run.state.state, stage.states()) == ("finished", ["finished", "finished"])


def test_worker_that_came_too_late_is_waited_for_and_tried_again_within_bounds(stage: Stage) -> None:
    stage.poll(2)
    for attempt in range(RESTARTS_MAX):
        stage.started[-1].fail(LATE)
        stage.poll()
        assert len(stage.started) == 2 + attempt
        stage.clock.now += 2 ** (attempt + 1)
        stage.poll()
        assert len(stage.started) == 3 + attempt
    assert stage.run.failure is None
    stage.started[-1].fail(LATE)
    stage.poll()
    assert stage.run.failure == "query two failed: SparkException: Python worker failed to connect back."


def test_failure_ends_the_other_streams_and_is_the_reason(stage: Stage) -> None:
    stage.poll(2)
    stage.started[0].fail(RuntimeError("it broke"))
    stage.poll()
    assert stage.run.failure == "query one failed: it broke"
    stage.run.ask_to_stop(stage.clock.now + 10)
    stage.poll()
    assert (stage.run.state.state, stage.run.state.reason) == ("failed", "query one failed: it broke")
    assert stage.states() == ["failed", "stopped"]


def test_stop_lets_the_batch_at_hand_end_until_the_deadline(stage: Stage) -> None:
    stage.poll(2)
    for query in stage.started:
        query.status["isTriggerActive"] = True
    stage.run.ask_to_stop(stage.clock.now + 10)
    stage.poll(3)
    assert [query.stop_count for query in stage.started] == [0, 0]
    stage.started[0].status["isTriggerActive"] = False
    stage.poll()
    assert [query.stop_count for query in stage.started] == [1, 0]
    stage.clock.now += 10
    stage.poll()
    assert [query.stop_count for query in stage.started] == [1, 1]
    assert stage.run.state.state == "stopped"


def test_what_fails_after_a_stop_was_asked_for_is_part_of_the_stop(stage: Stage) -> None:
    stage.poll(2)
    stage.started[0].status["isTriggerActive"] = True
    stage.run.ask_to_stop(stage.clock.now + 10)
    stage.started[0].fail(RuntimeError("a worker was interrupted"))
    stage.poll()
    assert (stage.run.failure, stage.run.state.state) == (None, "stopped")


def test_streams_that_were_not_started_yet_never_are_after_a_stop(stage: Stage) -> None:
    stage.poll()
    stage.run.ask_to_stop(stage.clock.now)
    stage.poll()
    assert [query.name for query in stage.started] == ["one"]
    assert stage.states() == ["stopped", "stopped"]


@pytest.mark.parametrize(("is_stopping", "state"), [(False, "failed"), (True, "stopped")])
def test_end_of_java_is_a_failure_unless_it_was_a_stop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_stopping: bool, state: str
) -> None:
    def gone(_: FakeQuery) -> bool:
        raise Py4JNetworkError("nobody answers")

    stage.poll(2)
    if is_stopping:
        stage.run.ask_to_stop(stage.clock.now + 10)
    for query in stage.started:
        del query.isActive
    monkeypatch.setattr(FakeQuery, "isActive", property(gone), raising=False)
    stage.poll()
    assert stage.run.state.state == state
    assert (stage.run.failure is None) == is_stopping


def test_close_ends_what_runs_and_gives_the_folder_back(stage: Stage) -> None:
    stage.poll(2)
    folder = stage.run.definition.checkpoint
    assert is_running(folder)
    stage.run.close()
    assert [query.stop_count for query in stage.started] == [1, 1]
    assert stage.run.state.reason == "the process ended before the pipeline did"
    assert not is_running(folder)


def test_streams_of_files_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definitions = []
    for name, path in (("p", "lake"), ("q", "../c/lake")):
        text = (
            f"name: {name}\nsources: [{{name: a, topic: a}}]\nsinks: [{{name: out, from: a, path: {path}}}]\n"
        )
        definitions.append(read_yaml(tmp_path / "c" / f"{name}.yaml", text, {}))
    monkeypatch.setattr(pipeline_run, "build", lambda spark, definition: _built(definition))
    spark: Any = SimpleNamespace()
    spark.newSession = lambda: spark
    sentence = "p/out and q/out write files to .*lake; give each a path of its own"
    with pytest.raises(PipelineError, match=sentence):
        run_pipelines(spark, definitions, RunOptions(), threading.Event())
    last = read_run(definitions[1].checkpoint)
    assert last is not None
    assert last.state == "failed"
    assert "p/out and q/out" in (last.reason or "")
    assert not any(is_running(definition.checkpoint) for definition in definitions)
