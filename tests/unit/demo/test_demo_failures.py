"""The demo when something goes wrong: it says what, keeps the logs, and leaves nothing else."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest
from demo import __main__ as command
from demo import story
from demo.broker import running_broker
from demo.diary import Diary
from demo.failure import DemoFailed
from demo.rest import ShopClient
from demo.shift import Shift
from demo.workers import Tally


def fail(*_args: object, **_options: object) -> None:
    raise DemoFailed("the shop is on fire")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_broker_that_does_not_start_is_said_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no ports left\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    with pytest.raises(DemoFailed, match="no ports left"), running_broker(tmp_path):
        pass


def test_failure_is_told_in_a_sentence_and_its_logs_are_kept(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_interrupt_on_signals", lambda: None)
    monkeypatch.setattr(story, "working", fail)
    report = tmp_path / "report"
    assert command.main(["--orders", "100", "--report", str(report)]) == 1
    said = capsys.readouterr().err
    assert "the demo failed: the shop is on fire" in said
    assert [path.name for path in report.iterdir()] == ["broker.log"]
    assert f"see broker.log in {report}" in said
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, DemoFailed])
def test_logs_are_kept_of_failures_and_not_of_interrupts(
    error: type[BaseException], tmp_path: Path, temporary: Path
) -> None:
    report = tmp_path / "report"

    def work() -> None:
        with story._workspace(report) as folder:
            (folder / "spark.log").write_text("what Spark said")
            raise error

    with pytest.raises(error):
        work()
    assert (report / "spark.log").exists() is (error is DemoFailed)
    assert list(temporary.iterdir()) == []


class _Counter(ShopClient):
    """The shop's client on a broker whose topics never grow."""

    def _record_count(self, topic: str) -> int:
        return 5


def test_records_that_never_come_are_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo.rest.ARRIVAL_S_MAX", 0.0)
    with pytest.raises(DemoFailed, match="topic orders has 5 records after 0 s, not 6"):
        _Counter("http://127.0.0.1:1").await_records("orders", 6, threading.Event())


def test_shift_of_orders_never_done_with_ends_with_how_many_were() -> None:
    shift = Shift(Diary(), Tally(10), [Future()])
    with pytest.raises(DemoFailed, match="after 0 s only 0 orders are done with"):
        shift.wait(0.0)
