"""Spark finds `format("goqueue")` here: it imports every module whose name begins with `pyspark_`, so this one is light."""

from goqueue.pipeline.data_source import GoQueueSource as DefaultSource

__all__ = ["DefaultSource"]
