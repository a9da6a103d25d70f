"""`python -m demo` as users run it: a small shop's day from beginning to end, and one that is interrupted."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from demo.expected import expect
from demo.orders import open_shop
from tests.support.broker import Lines
from tests.support.spark_cluster import only_in_soak

ROOT = Path(__file__).parents[2]
ORDERS, SEED = 400, 11
END_S_MAX = 540.0
pytestmark = [pytest.mark.timeout(600)]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Where the demo puts what is to be gone afterwards; its name is short, for Spark has sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="gqd-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def started(temporary: Path, report: Path) -> subprocess.Popen[str]:
    command = (sys.executable, "-m", "demo", "--orders", str(ORDERS), "--seconds", "3", "--seed", str(SEED))
    return subprocess.Popen(
        [*command, "--report", str(report)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def embedded(page: Path) -> dict[str, Any]:  # Any: whatever JSON holds
    found = re.search(r'id="demo-data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@only_in_soak
def test_report_has_the_numbers_of_the_generator_and_nothing_else_is_left(
    temporary: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    with started(temporary, report) as process:
        said, _ = process.communicate(timeout=END_S_MAX)
    assert process.returncode == 0, said
    data, expected = embedded(report / "index.html"), expect(open_shop(SEED, ORDERS))
    found = {check["what"]: check["found"] for check in data["checks"]}
    assert data["is_right"] is True
    assert found["orders in the topic"] == found["orders in the archive"] == ORDERS
    assert found["orders acknowledged"] == expected.acked
    assert found["deliveries, retries among them"] == expected.deliveries
    assert {
        (window["start_ms"], window["category"]): window["cents"] for window in data["revenue"]
    } == expected.revenue_cents
    assert sum(letter["count"] for letter in data["dead_letters"]) == expected.poison
    assert data["audit"]["records"] == ORDERS
    assert data["audit"]["breaks"] == expected.breaks
    assert data["pipeline"]["lake"]["rows_out_total"] == expected.rows
    assert (report / "index.html").read_text().count("<svg") == 4
    assert (report / "index.html").as_uri() in said
    assert [path.name for path in report.iterdir()] == ["index.html"]
    assert list(temporary.iterdir()) == []


def test_interrupt_stops_everything_that_was_started(temporary: Path, tmp_path: Path) -> None:
    with started(temporary, tmp_path / "report") as process:
        assert process.stdout is not None
        lines = Lines(process.stdout, "the demo")
        found = lines.wait_for(r"REST at ([\d.]+):(\d+)", timeout_s=120)
        lines.wait_for("starting Spark meanwhile", timeout_s=120)
        os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C does: everybody in the group
        assert process.wait(END_S_MAX) == 130, lines.text()
        said = lines.join()
    assert "everything that was started has been stopped" in said
    assert "Traceback" not in said
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((found[1], int(found[2])), timeout=5)
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "report").exists()
