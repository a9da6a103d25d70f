"""Spark as others run it: a standalone master with two workers, and a Spark Connect server. On loopback, on free ports."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest
from tests.support.ports import port_of_ours
from tests.support.spark_processes import Tree

from goqueue.pipeline.session.java import find_java

_HOME = Path(pyspark.__file__).parent
_CLASS = str(_HOME / "bin" / "spark-class")
_START_S = 120.0
_WORKER_HOSTS = ("127.0.0.1", "127.0.0.2")  # Spark tries a slow task again on another host only
_MEMORY = "512m"
_DAEMON_MEMORY = "768m"  # a Connect server is one of them, and needs more than the others
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_READY = re.compile(r"Successfully registered with master")
_CONNECT_READY = re.compile(r"Spark Connect server started")
# What takes a cluster or another's jars runs with `make pipeline-soak`, not with every test run.
only_in_soak = pytest.mark.skipif(
    "GOQUEUE_PIPELINE_SOAK" not in os.environ, reason="make pipeline-soak runs it"
)
CLUSTER_SETTINGS = {
    "spark.executor.memory": _MEMORY,
    "spark.executor.cores": "1",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[tuple[str, list[Tree]]]:
    """The master's address, and the workers."""
    with ExitStack() as stack:
        master = stack.enter_context(
            _spark("deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        )
        address = master.output.wait_for(_MASTER_AT, timeout_s=_START_S)[1]
        workers = [
            stack.enter_context(
                _spark(
                    "deploy.worker.Worker",
                    *("--host", host, "--webui-port", "0", "--cores", "1", "--memory", _MEMORY),
                    *("--work-dir", str(folder / f"worker-{host}"), address),
                    host=host,
                )
            )
            for host in _WORKER_HOSTS
        ]
        for worker in workers:
            worker.output.wait_for(_WORKER_READY, timeout_s=_START_S)
        yield address, workers


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """The address of a Spark Connect server."""
    port = port_of_ours()
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    server = _spark(
        "deploy.SparkSubmit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *options, "spark-internal"),
    )
    with server:
        server.output.wait_for(_CONNECT_READY, timeout_s=_START_S)
        yield f"sc://127.0.0.1:{port}"


def _spark(name: str, *args: str, host: str = "127.0.0.1") -> Tree:
    env = {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(_HOME),
        "SPARK_LOCAL_IP": host,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
    }
    return Tree([_CLASS, f"org.apache.spark.{name}", *args], name=name.rpartition(".")[2], env=env)
