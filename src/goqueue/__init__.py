"""GoQueue: one broker that is a log and a queue."""

__version__ = "0.1.0"
