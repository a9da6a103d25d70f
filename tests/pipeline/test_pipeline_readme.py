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
INSTALLING = {". .venv/bin/activate", "pip install 'goqueue[spark]'"}  # what whoever runs the tests has done


def test_snippets_work_in_the_order_in_which_they_stand(
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
    environment = clean_environment({"GOQUEUE_URL": broker.url, "GOQUEUE_BOOTSTRAP": broker.kafka})
    printed = ""
    for language, snippet in re.findall(r"```(sh|python)\n(.*?)```", SECTION, re.DOTALL):
        if language == "sh":
            printed += "".join(
                _run(line, environment) for line in snippet.splitlines() if line not in INSTALLING
            )
        else:
            exec(compile(snippet.replace("127.0.0.1:9092", broker.kafka), "README.md", "exec"), {})  # noqa: S102
    assert re.search(r"^records +2$", printed, re.MULTILINE)
    assert "|alice|2 apples|" in capsys.readouterr().out
    written = (
        spark.read.format("goqueue")
        .option("bootstrap.servers", broker.kafka)
        .option("subscribe", "loud-orders")
    )
    rows = written.load().selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").collect()
    assert sorted(map(tuple, rows)) == [("alice", "2 APPLES"), ("bob", "1 PEAR")]


def _run(line: str, environment: dict[str, str]) -> str:
    command = command_line(*line.split()[1:])
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout
