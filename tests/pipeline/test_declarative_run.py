"""Declarative pipelines on a real broker: parsed, enriched, counted, written once each, over restarts."""

from __future__ import annotations

import json
import shutil
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.broker import Broker
from tests.support.kafka_clients import new_topic
from tests.support.order_stream import POISON, Orders, committed_of, write_customers
from tests.support.sink_target import Target

from goqueue.model import dead_letter_headers as letters
from goqueue.pipeline.declarative.loading import load
from goqueue.pipeline.declarative.pipeline_run import RunOptions
from goqueue.pipeline.declarative.planning import plan
from goqueue.pipeline.declarative.running import run_pipelines
from goqueue.pipeline.declarative.state import STOP, RunState, is_running, read_run
from goqueue.pipeline.errors import PipelineError

NOW = RunOptions(is_available_now=True)
YAML = """
name: orders
broker: {{bootstrap: "{kafka}"}}
settings: {{spark.sql.shuffle.partitions: 2}}
sources:
  - name: orders
    topic: {orders}
    format: json
    schema: id BIGINT NOT NULL, customer STRING, amount DOUBLE, at TIMESTAMP NOT NULL
    bad_rows: {{topic: {bad}}}
    watermark: {{column: at, delay: 1 minute}}
    options: {{maxOffsetsPerTrigger: 37}}
  - {{name: customers, path: customers.csv, format: csv}}
views:
  - name: enriched
    sql: |
      SELECT o.*, c.country, to_date(at) AS day
      FROM orders o JOIN customers c ON o.customer = c.customer
  - name: by_minute
    sql: |
      SELECT window.start AS minute, country, count(*) AS orders
      FROM enriched GROUP BY window(at, '1 minute'), country
sinks:
  - {{name: minutes, from: by_minute, topic: {minutes}, key: country}}
  - {{name: lake, from: enriched, path: lake, partition_by: [day]}}
"""
SQL = """
SET broker.bootstrap = {kafka};
SET spark.sql.shuffle.partitions = 2;
CREATE TEMPORARY VIEW orders (id BIGINT NOT NULL, customer STRING, amount DOUBLE, at TIMESTAMP NOT NULL)
USING goqueue OPTIONS (topic '{orders}', format 'json', bad_rows 'nulls');
INSERT INTO topic.`{minutes}` WITH (name = 'minutes', key = 'customer', mode = 'update')
SELECT window.start AS minute, customer, count(id) AS orders
FROM orders WATERMARK at DELAY OF INTERVAL 1 MINUTE
WHERE id IS NOT NULL
GROUP BY window(at, '1 minute'), customer;
"""


@pytest.fixture
def orders(shared_broker: Broker) -> Orders:
    return Orders.create(shared_broker)


class Pipeline:
    """A file in a folder of its own, with topics of its own."""

    def __init__(
        self, spark: SparkSession, orders: Orders, folder: Path, text: str, name: str = "orders.yaml"
    ) -> None:
        self.spark, self.orders, self.folder = spark, orders, folder
        broker = orders.broker
        self.minutes = Target(broker, new_topic(broker), 1)
        self.bad = Target(broker, new_topic(broker), 1)
        self.file = folder / name
        write_customers(folder)
        self.write(text)

    def write(self, text: str) -> None:
        self.file.write_text(
            text.format(
                kafka=self.orders.broker.kafka,
                orders=self.orders.topic,
                minutes=self.minutes.topic,
                bad=self.bad.topic,
            )
        )

    def run(self, options: RunOptions = NOW, stop: threading.Event | None = None) -> RunState:
        (state,) = run_pipelines(self.spark, [load(self.file)], options, stop or threading.Event())
        return state

    def counts(self) -> dict[tuple[str, str], int]:
        """What the topic has of windows; one that came twice is an error."""
        found: dict[tuple[str, str], int] = {}
        for row in self.minutes.rows():
            value = json.loads(row.value or b"")
            place = (datetime.fromisoformat(value["minute"]).isoformat(), value["country"])
            assert place not in found, f"{place} came twice"
            assert row.key == value["country"].encode()
            found[place] = value["orders"]
        return found

    def lake_ids(self) -> list[int]:
        rows = self.spark.read.parquet(str(self.folder / "lake")).select("id").collect()
        return sorted(row.id for row in rows)


def test_pipeline_goes_on_after_a_restart_and_every_row_counts_once(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    pipeline = Pipeline(spark, orders, tmp_path, YAML)
    orders.send(100, poison=POISON)
    first = pipeline.run()
    assert first.state == "finished"
    assert pipeline.counts() == orders.windows(delay=timedelta(minutes=1))
    orders.send(120, poison=POISON[:1])
    second = pipeline.run()
    assert second.queries["lake"].rows_out_total == 120
    assert second.queries["orders.bad"].rows_out_total == 1
    assert pipeline.counts() == orders.windows(delay=timedelta(minutes=1))
    assert pipeline.lake_ids() == [order["id"] for order in orders.sent]
    assert sorted(row.value or b"" for row in pipeline.bad.rows()) == sorted(orders.poison)
    assert committed_of(orders.broker, "orders.lake") == len(orders.sent) + len(orders.poison)
    assert not is_running(load(pipeline.file).checkpoint)


def test_dead_letter_is_the_record_as_it_came_with_where_it_was_in_a_topic_that_is_made_for_it(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    pipeline = Pipeline(spark, orders, tmp_path, YAML.replace("{bad}", "{orders}.bad"))
    orders.send(3, poison=[b"no json"])
    pipeline.run()
    (row,) = Target(orders.broker, f"{orders.topic}.bad", 3).rows()
    headers = dict(row.headers)
    assert (row.key, row.value, headers["trace"]) == (b"poison", b"no json", b"1")
    assert headers[letters.TOPIC] == orders.topic.encode()
    assert headers[letters.GROUP] == b"orders.orders.bad"
    assert int(headers[letters.PARTITION]) == 0


def test_sql_file_runs_as_the_yaml_does(spark: SparkSession, orders: Orders, tmp_path: Path) -> None:
    pipeline = Pipeline(spark, orders, tmp_path, SQL, "orders.sql")
    orders.send(60, poison=POISON)
    state = pipeline.run()
    assert state.pipeline == "orders"
    newest: dict[tuple[str, str], int] = {}
    for row in pipeline.minutes.rows():
        value = json.loads(row.value or b"")
        newest[value["minute"], value["customer"]] = value["orders"]
    assert sum(newest.values()) == 60


def test_plan_says_where_it_goes_on_and_how_much_waits(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    pipeline = Pipeline(spark, orders, tmp_path, YAML)
    orders.send(20)
    before = {query.name: query for query in plan(spark.newSession(), load(pipeline.file))}
    assert list(before) == ["orders.bad", "minutes", "lake"]
    assert before["lake"].batch_id is None
    assert sum(part.lag or 0 for part in before["lake"].stretches) == 20
    assert "country string" in before["lake"].columns
    assert before["minutes"].columns == "key string, value string"
    pipeline.run()
    orders.send(5)
    after = {query.name: query for query in plan(spark.newSession(), load(pipeline.file))}
    assert after["lake"].batch_id == 1
    assert sum(part.lag or 0 for part in after["lake"].stretches) == 5


def test_changed_topic_is_refused_before_anything_runs(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    pipeline = Pipeline(spark, orders, tmp_path, YAML)
    orders.send(10)
    pipeline.run()
    other = Orders.create(orders.broker)
    pipeline.write(YAML.replace("{orders}", other.topic))
    with pytest.raises(PipelineError, match=f"read topic {orders.topic}, and now reads topic {other.topic}"):
        pipeline.run()
    state = read_run(load(pipeline.file).checkpoint)
    assert state is not None
    assert state.state == "failed"


def test_bad_row_fails_the_pipeline_with_one_sentence_where_it_is_told_to(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    text = YAML.replace("bad_rows: {{topic: {bad}}}", "bad_rows: fail")
    pipeline = Pipeline(spark, orders, tmp_path, text)
    orders.send(10, poison=[b"no json"])
    with pytest.raises(PipelineError) as raised:
        pipeline.run()
    told = str(raised.value)
    assert len(told.splitlines()) == 1
    assert told.startswith("pipeline orders: query ")
    assert f"the record at offset 5 of {orders.topic}-0 is no row of its source's schema" in told
    pipeline.write(YAML)
    pipeline.run()
    assert pipeline.lake_ids() == [order["id"] for order in orders.sent]


def test_running_pipeline_stops_when_it_is_asked_to(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    pipeline = Pipeline(spark, orders, tmp_path, YAML)
    orders.send(10)
    stop = threading.Event()

    def stop_after_a_batch(run: RunState, query: str | None) -> None:
        if all(state.rows_in_total for name, state in run.queries.items()):
            stop.set()

    state = pipeline.run(RunOptions(on_change=stop_after_a_batch), stop)
    assert state.state == "stopped"
    assert {query.state for query in state.queries.values()} == {"stopped"}
    orders.send(5)
    pipeline.run()
    assert pipeline.lake_ids() == [order["id"] for order in orders.sent]


def test_several_pipelines_share_a_process_and_one_can_be_stopped(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    simple = "broker: {{bootstrap: '{kafka}'}}\nsources: [{{name: a, topic: {orders}}}]\nsinks: [{{name: out, from: a, path: out}}]\n"
    pipelines = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        pipelines.append(Pipeline(spark, orders, tmp_path / name, f"name: {name}\n{simple}"))
    orders.send(8)
    definitions = [load(pipeline.file) for pipeline in pipelines]
    stop = threading.Event()
    ends: list[str] = []
    rows = {"one": 0, "two": 0}

    def end_one_after_the_other(run: RunState, query: str | None) -> None:
        rows[run.pipeline] = sum(state.rows_in_total for state in run.queries.values())
        if run.state == "stopped":
            ends.append(run.pipeline)
        if run.state == "running" and run.pipeline == "one" and rows["one"] == 8:
            (definitions[0].checkpoint / STOP).write_text(run.run_id)
        if ends == ["one"] and rows["two"] == 8:
            stop.set()

    states = run_pipelines(spark, definitions, RunOptions(on_change=end_one_after_the_other), stop)
    assert ends == ["one", "two"]
    assert [state.state for state in states] == ["stopped", "stopped"]
    assert [spark.read.parquet(str(tmp_path / name / "out")).count() for name in ("one", "two")] == [8, 8]

    # Begun anew, its first batches would have numbers that the folder knows: Spark would leave them out.
    shutil.rmtree(definitions[0].checkpoint / "queries")
    with pytest.raises(PipelineError, match=r"query out would write to .*, where another query.* up to \d+;"):
        pipelines[0].run()
    shutil.rmtree(tmp_path / "one" / "out")
    pipelines[0].run()
    assert spark.read.parquet(str(tmp_path / "one" / "out")).count() == 8


def _write_module(folder: Path) -> None:
    (folder / "order_views.py").write_text(
        "from pyspark.sql import DataFrame\n"
        "from pyspark.sql import functions as F\n\n"
        "def _double(x): return 2 * x\n\n"
        "def doubled(orders: DataFrame) -> DataFrame:\n"
        "    return orders.select('id', F.udf(_double, 'double')('amount').alias('amount'))\n"
    )


def test_view_in_python_and_batches_without_a_stream(
    spark: SparkSession, orders: Orders, tmp_path: Path
) -> None:
    _write_module(tmp_path)
    text = """
name: batch
broker: {{bootstrap: "{kafka}"}}
sources:
  - name: orders
    topic: {orders}
    stream: false
    format: json
    schema: id BIGINT, amount DOUBLE
views: [{{name: twice, python: "order_views:doubled"}}]
sinks:
  - {{name: files, from: twice, path: out, format: json}}
  - {{name: copy, from: twice, topic: {minutes}, key: id, headers: "map('a', 'b')"}}
"""
    pipeline = Pipeline(spark, orders, tmp_path, text)
    orders.send(4)
    for _ in range(2):
        state = pipeline.run()
        assert {query.state for query in state.queries.values()} == {"finished"}
    found = sorted(
        tuple(row) for row in spark.read.json(str(tmp_path / "out")).select("id", "amount").collect()
    )
    assert found == [(0, 1.0), (1, 3.0), (2, 5.0), (3, 7.0)]
    rows = pipeline.minutes.rows()
    assert len(rows) == 8
    assert {row.headers for row in rows} == {(("a", b"b"),)}
    assert {row.key for row in rows} == {b"0", b"1", b"2", b"3"}
