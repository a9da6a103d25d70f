"""`goqueue-admin`: a second name for what `goqueue cluster reassign` does."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from goqueue.cli import admin, main
from goqueue.client.reassignments import Plan, ReassignmentClient

PLAN = Plan(3, "running", 5, None, 1_000, None, {"moving": 2}, [])
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("app", "before"), [(admin.app, ["reassign"]), (main.app, ["cluster", "reassign"])], ids=["admin", "main"]
)
def test_plans_are_told_under_both_names(
    app: typer.Typer, before: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReassignmentClient, "all", lambda self: [PLAN])
    result = CliRunner().invoke(app, ["--url", "http://there:1", *before, "status"])
    assert result.exit_code == 0, result.output
    assert result.output.split() == ["PLAN", "STATE", "MOVES", "THROTTLE", "3", "running", "2", "moving", "-"]


def test_it_is_installed_and_ends_as_goqueue_does() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["goqueue-admin"] == "goqueue.cli.admin:run"
    command = [sys.executable, "-m", "goqueue.cli.admin"]
    asked = [*command, "--url", "http://127.0.0.1:1", "reassign", "status"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    wrong = subprocess.run([*command, "reassing"], capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
