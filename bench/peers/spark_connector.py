"""Spark's own connector for Kafka, as a peer of our source and sink: its jars, which a session has to be started with.

The newest one that is published may be of the release before the Spark that is installed; the title says which it is.
"""

from __future__ import annotations

from pathlib import Path

from bench.peers.maven import cache_folder, fetch_jars, read_pins

NAME = "connector"
FORMAT = "kafka"
_PINS = Path(__file__).with_suffix(".sha256")
_MODULE = "spark-sql-kafka"


def connector_title() -> str:
    jar = next(Path(name) for name in read_pins(_PINS) if _MODULE in name)
    return f"{_MODULE} {jar.parent.name}"


def connector_jars() -> list[Path]:
    """`PeerAbsent` where they cannot be had."""
    return fetch_jars(read_pins(_PINS), cache_folder())
