"""The data pipeline: Spark jobs over topics. The broker never imports this folder; executors import little else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_session(
    *, master: str | None = None, remote: str | None = None, settings: dict[str, str] | None = None
) -> SparkSession:
    """A session with the defaults that suit this broker, on this machine unless told otherwise."""
    from goqueue.pipeline.session.session import SessionOptions, start_session  # executors need no session

    return start_session(SessionOptions(master=master, remote=remote, settings=settings or {}))
