"""A master and two workers give what one process gives: a read, an exactly-once write, a stream and a job."""

from __future__ import annotations

import sys
from pathlib import Path

from msgspec.structs import replace
from pyspark.sql import SparkSession
from tests.support.broker import Broker
from tests.support.spark_cluster import CLUSTER_SETTINGS, only_in_soak, standalone_cluster
from tests.support.spark_work import work
from tests.support.spark_work_topics import check, prepare, run_elsewhere


@only_in_soak
def test_cluster_gives_what_one_process_gives(
    spark: SparkSession, shared_broker: Broker, topic: str, tmp_path: Path
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    here = replace(prepare(shared_broker, topic, tmp_path / "here"), is_archived=True)
    there = prepare(shared_broker, f"{topic}-there", tmp_path / "there")
    with standalone_cluster(tmp_path) as (master, _):
        settings = CLUSTER_SETTINGS | {"spark.pyspark.python": sys.executable}
        there = replace(there, master=master, settings=settings, is_archived=True)
        done_there = run_elsewhere(there, SPARK_LOCAL_IP="127.0.0.1")
    done_here = work(spark, here)
    check(shared_broker, there, done_there)
    check(shared_broker, here, done_here)
    assert done_here == done_there
