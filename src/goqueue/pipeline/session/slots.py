"""How many tasks a Spark runs at once: what a job with tasks of its own sizes them by."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_REMOTE_SLOTS = 16  # of a Spark Connect server, which does not tell


def task_slots(spark: SparkSession) -> int:
    """Of a cluster, what its executors have by now."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):  # a remote session has no context
        return _REMOTE_SLOTS
