"""One Spark session and one broker for all tests of the pipeline: either takes longer to start than most tests to run. So they
all go to one worker of xdist (tests/conftest.py)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.broker import Broker

from goqueue.pipeline.session.session import SessionOptions, start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores; a task that fails is tried again once, as on a cluster."""
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    session = start_session(SessionOptions(master="local[2,2]", settings=settings, is_short=True))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """For tests that only use topics of their own."""
    folder: Path = tmp_path_factory.mktemp("pipeline-broker")
    with Broker(folder / "data") as running:
        yield running


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"t-{uuid.uuid4().hex[:12]}"
