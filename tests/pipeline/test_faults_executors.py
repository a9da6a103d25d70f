"""Executors and Python workers that die or hang in the middle of a write: the rows are there, and once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import tests.support.spark_killing_sink as killing_sink
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from tests.support.broker import Broker
from tests.support.kafka_clients import until
from tests.support.sink_target import Target
from tests.support.spark_cluster import CLUSTER_SETTINGS, only_in_soak, standalone_cluster
from tests.support.spark_killing_sink import FORMAT, TRAP, KillingSource
from tests.support.spark_processes import Tree, command_of, descendants, kill9_all, python_command
from tests.support.spark_straggler import DONE, ROW_COUNT, StragglerRequest

TIMEOUT_S = 280.0
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
}


@pytest.fixture
def killing_spark(spark: SparkSession) -> Iterator[SparkSession]:
    cloudpickle.register_pickle_by_value(killing_sink)  # type: ignore[no-untyped-call] # the workers cannot import tests
    spark.dataSource.register(KillingSource)
    yield spark
    cloudpickle.unregister_pickle_by_value(killing_sink)  # type: ignore[no-untyped-call] # as above


def test_python_worker_that_is_killed_after_it_wrote_leaves_no_trace(
    killing_spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    target = Target(shared_broker, topic).create()
    trap = tmp_path / "trap"
    trap.touch()
    frame = killing_spark.range(0, 3_000, 1, 2).selectExpr("cast(cast(id as string) as binary) value")
    writer = frame.write.format(FORMAT).mode("append").option("bootstrap.servers", shared_broker.kafka)
    writer.option("topic", topic).option(TRAP, str(trap)).save()
    assert not trap.exists()
    assert target.values() == sorted(b"%d" % number for number in range(3_000))
    until(lambda: target.is_settled, "readers go on")


@only_in_soak
@pytest.mark.parametrize("fate", ["speculation", "kill"])
def test_executor_that_hangs_or_dies_in_the_middle_of_a_write_leaves_no_trace(
    shared_broker: Broker, topic: str, tmp_path: Path, fate: str
) -> None:
    target = Target(shared_broker, topic).create()
    place = tmp_path / "place"
    with standalone_cluster(tmp_path) as (master, workers):
        settings = CLUSTER_SETTINGS | {"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
        settings |= SPECULATION if fate == "speculation" else {}
        request = StragglerRequest(shared_broker.kafka, topic, str(place), master, settings)
        command = python_command("tests.support.spark_straggler", msgspec.json.encode(request).decode())
        env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        with Tree(command, name="straggler", env=env) as driver:
            if fate == "kill":
                until(lambda: place.exists() and bool(place.read_text()), "a task hangs", timeout_s=TIMEOUT_S)
                kill9_all(_executor_of(int(place.read_text()), workers))
            driver.output.wait_for(DONE, timeout_s=TIMEOUT_S)
    assert target.values() == sorted(b"%d" % number for number in range(ROW_COUNT))
    until(lambda: target.is_settled, "readers go on")


def _executor_of(pid: int, workers: list[Tree]) -> list[int]:
    """The JVM that runs the Python worker with this id."""
    found = [
        executor
        for worker in workers
        for executor in worker.descendants()
        if "CoarseGrainedExecutorBackend" in command_of(executor) and pid in descendants(executor)
    ]
    assert found, f"no executor has the process {pid}"
    return found
