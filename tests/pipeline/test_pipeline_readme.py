"""The README's Spark section, run as it is printed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.broker import Broker, clean_environment, command_line

from goqueue.client.rest import NewMessage, RestClient

README = (Path(__file__).parents[2] / "README.md").read_text()
SECTION = README[README.index("## On Spark") : README.index("## What it does today")]


def test_snippets_work(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with RestClient(broker.url) as client:
        client.create_topic("orders")
        client.publish("orders", [NewMessage(b"2 apples", b"alice"), NewMessage(b"1 pear", b"bob")])
    monkeypatch.chdir(tmp_path)
    (python,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    (shell,) = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
    environment = clean_environment({"GOQUEUE_URL": broker.url, "GOQUEUE_BOOTSTRAP": broker.kafka})
    outputs = []
    for line in shell.splitlines():
        command = command_line(*line.split()[1:])
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        outputs.append(done.stdout)
    assert re.search(r"records +2\n", outputs[1])
    exec(compile(python.replace("127.0.0.1:9092", broker.kafka), "README.md", "exec"), {})  # noqa: S102
    assert "|alice|2 apples|" in capsys.readouterr().out
    written = (
        spark.read.format("goqueue")
        .option("bootstrap.servers", broker.kafka)
        .option("subscribe", "loud-orders")
    )
    rows = written.load().selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
    assert sorted(map(tuple, rows)) == [("alice", "2 APPLES"), ("bob", "1 PEAR")]
