"""State files of a running pipeline: one process at a time, seen and stopped from others."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from goqueue.pipeline.declarative.state import RUN, STOP, Claim, ask_to_stop, is_running, read_run
from goqueue.pipeline.errors import PipelineError


def test_folder_has_one_runner_at_a_time(tmp_path: Path) -> None:
    claim = Claim(tmp_path / "cp", "orders")
    assert is_running(tmp_path / "cp")
    with pytest.raises(PipelineError, match=r"orders is run by process \d+ on .*goqueue pipeline stop"):
        Claim(tmp_path / "cp", "orders")
    claim.release()
    assert not is_running(tmp_path / "cp")
    Claim(tmp_path / "cp", "orders").release()


def test_run_that_never_was_is_none(tmp_path: Path) -> None:
    assert read_run(tmp_path) is None
    assert not is_running(tmp_path)
    assert ask_to_stop(tmp_path, timeout_s=0)


def test_stop_reaches_the_run_that_it_was_meant_for(tmp_path: Path) -> None:
    first = Claim(tmp_path, "orders")
    assert not ask_to_stop(tmp_path, timeout_s=0)
    assert first.is_asked_to_stop()
    first.release()
    (tmp_path / STOP).write_text(first.run.run_id)
    second = Claim(tmp_path, "orders")
    assert not second.is_asked_to_stop()
    (tmp_path / STOP).write_text(first.run.run_id)
    assert not second.is_asked_to_stop()
    second.release()


def test_stop_waits_for_the_end(tmp_path: Path) -> None:
    claim = Claim(tmp_path, "orders")
    found: list[bool] = []
    asking = threading.Thread(target=lambda: found.append(ask_to_stop(tmp_path, timeout_s=30)))
    asking.start()
    while not claim.is_asked_to_stop():
        pass
    claim.release()
    asking.join(30)
    assert found == [True]


def test_state_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    claim = Claim(tmp_path, "orders")
    claim.run.state, claim.run.reason = "failed", "because"
    claim.save()
    assert read_run(tmp_path) == claim.run
    claim.release()
    (tmp_path / RUN).write_text("{")
    with pytest.raises(PipelineError, match="is no state of a pipeline"):
        read_run(tmp_path)


def test_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="cannot be used"):
        Claim(tmp_path / "file" / "cp", "orders")
