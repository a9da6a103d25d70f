"""The commands as people run them: Ctrl-C keeps the checkpoint, another process stops it, metrics are there to be scraped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from tests.support.broker import Broker, Lines, clean_environment, command_line
from tests.support.order_stream import Orders, committed_of
from tests.support.spark_cluster import only_in_soak

RUN_TIMEOUT_S = 240.0
YAML = """
name: copy
broker: {{bootstrap: "{kafka}"}}
trigger: every 200 ms
sources:
  - {{name: orders, topic: {topic}, format: json, schema: id BIGINT NOT NULL}}
sinks:
  - {{name: lake, from: orders, path: lake}}
"""


class Running:
    """`goqueue pipeline run` in a group of processes of its own, as a terminal has it."""

    def __init__(self, *args: str) -> None:
        command = command_line(
            "pipeline", "run", *args, "--master", "local[2]", "--conf", "spark.driver.memory=1g"
        )
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.stdout = Lines(self._process.stdout, "stdout of run")
        self.stderr = Lines(self._process.stderr, "stderr of run")

    def press_ctrl_c(self) -> None:
        """The whole group gets it: Java and Spark's workers, too."""
        os.killpg(self._process.pid, signal.SIGINT)

    def wait(self) -> int:
        code = self._process.wait(RUN_TIMEOUT_S)
        self.stdout.join()
        self.stderr.join()
        return code

    def end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self.wait()


@contextmanager
def _running(*args: str) -> Iterator[Running]:
    running = Running(*args)
    try:
        yield running
    finally:
        running.end()


def _command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command_line("pipeline", *args),
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        env=clean_environment(),
    )


def _lake_ids(folder: Path) -> list[int]:
    """As any reader sees them that is told what Spark has committed."""
    log = folder / "lake" / "_spark_metadata"
    entries = [
        line
        for file in sorted(log.iterdir())
        if not file.name.startswith(".")
        for line in file.read_text().splitlines()[1:]
    ]
    files = [json.loads(entry)["path"].removeprefix("file://") for entry in entries]
    return sorted(ds.dataset(files).to_table(columns=["id"])["id"].to_pylist()) if files else []


@only_in_soak
@pytest.mark.timeout(600)
def test_ctrl_c_and_stop_keep_the_checkpoint_and_the_next_run_goes_on(
    shared_broker: Broker, tmp_path: Path
) -> None:
    orders = Orders.create(shared_broker)
    file = tmp_path / "copy.yaml"
    file.write_text(YAML.format(kafka=shared_broker.kafka, topic=orders.topic))
    assert "never run" in _command("status", str(file)).stdout
    orders.send(50)
    with _running(str(file), "--metrics-port", "0") as first:
        address = first.stderr.wait_for(r"metrics at (http://\S+)", timeout_s=RUN_TIMEOUT_S)[1]
        first.stderr.wait_for(r"copy/lake batch \d+: [\d,]+ rows in", timeout_s=RUN_TIMEOUT_S)
        status = json.loads(_command("status", str(file), "-o", "json").stdout)
        assert (status["state"], status["is_running"], status["queries"]["lake"]["rows_in_total"]) == (
            "running",
            True,
            50,
        )
        with urllib.request.urlopen(address, timeout=10) as answer:
            metrics = answer.read().decode()
        assert 'goqueue_pipeline_rows_read_total{pipeline="copy",query="lake"} 50.0' in metrics
        assert 'goqueue_pipeline_rows_written_total{pipeline="copy",query="lake"} 50.0' in metrics
        assert (
            f'goqueue_pipeline_lag_records{{pipeline="copy",query="lake",topic="{orders.topic}"}} 0.0'
            in metrics
        )
        second = _command("run", str(file), "--available-now")
        assert second.returncode == 1
        assert "pipeline copy is run by process" in second.stderr
        first.press_ctrl_c()
        assert first.wait() == 0, first.stderr.text()
    assert json.loads(_command("status", str(file), "-o", "json").stdout)["state"] == "stopped"
    assert committed_of(shared_broker, "copy.lake") == 50
    orders.send(30)
    with _running(str(file)) as again:
        again.stderr.wait_for(r"copy/lake batch \d+: 30 rows in", timeout_s=RUN_TIMEOUT_S)
        stopped = _command("stop", str(file))
        assert (stopped.returncode, stopped.stdout) == (0, "copy has stopped\n"), stopped.stderr
        assert again.wait() == 0, again.stderr.text()
    assert _command("stop", str(file)).stdout == "copy is not running\n"
    assert _lake_ids(tmp_path) == [order["id"] for order in orders.sent]


def test_structure_is_refused_without_starting_spark(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: x\nsorces: []\nsinks: []\n")
    for command in ("validate", "run", "plan", "status", "stop"):
        done = _command(command, str(file))
        assert done.returncode == 1
        assert (
            f"error: {file}:2: sorces: there is no field 'sorces' here; did you mean sources?" in done.stderr
        )
        assert "Traceback" not in done.stderr


@pytest.mark.timeout(600)
def test_validate_lists_problems_of_all_files_and_fails(tmp_path: Path) -> None:
    for name, column in (("good", "key"), ("bad", "keyy")):
        (tmp_path / f"{name}.sql").write_text(
            f"CREATE TEMPORARY VIEW a USING goqueue OPTIONS (topic 'a');\nINSERT INTO console.x SELECT {column} FROM a;\n"
        )
    done = _command("validate", str(tmp_path / "good.sql"), str(tmp_path / "bad.sql"), "--master", "local[1]")
    assert done.returncode == 1
    assert "pipeline good is right; 1 queries" in done.stdout
    assert f"error: {tmp_path}/bad.sql:2: views[0].sql:" in done.stderr
    assert "`keyy` cannot be resolved" in done.stderr
    assert "goqueue/" not in done.stderr.replace(
        str(tmp_path), ""
    )  # no place in the code; Spark's workers may well complain of their end
