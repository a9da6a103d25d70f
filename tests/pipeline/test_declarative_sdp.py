"""Our source and sink in Spark's own declarative pipelines (`spark-pipelines`), over a restart."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.broker import Broker, clean_environment
from tests.support.kafka_clients import new_topic
from tests.support.order_stream import Orders
from tests.support.sink_target import Target
from tests.support.spark_cluster import only_in_soak

from goqueue.pipeline.session.java import find_java

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_pipelines"
RUN_TIMEOUT_S = 400.0

pytestmark = [only_in_soak, pytest.mark.timeout(900)]


def _run(folder: Path, **environment: str) -> None:
    bin_folder = Path(sys.executable).parent
    local = {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [
        str(bin_folder / "spark-pipelines"),
        "run",
        "--remote",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
    ]
    command += [
        "--conf",
        f"spark.sql.warehouse.dir={folder / 'warehouse'}",
        "--spec",
        str(folder / "spark-pipeline.yml"),
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env=clean_environment({**local, **environment}),
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]


def test_records_pass_once_through_sparks_own_pipelines(shared_broker: Broker, tmp_path: Path) -> None:
    orders = Orders.create(shared_broker)
    target = Target(shared_broker, new_topic(shared_broker), 1)
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text(
        spec.read_text().replace("file:///tmp/goqueue-spark-pipelines", f"file://{tmp_path}/storage")
    )
    names = {
        "GOQUEUE_BOOTSTRAP": shared_broker.kafka,
        "ORDERS_TOPIC": orders.topic,
        "PAID_TOPIC": target.topic,
    }
    for count in (20, 5):
        orders.send(count, poison=[b"no json"])
        _run(tmp_path, **names)
        assert len(target.rows()) == len(orders.sent)
