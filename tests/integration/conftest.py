"""What holds for all tests with real processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from tests.support.kafka_clients import collect_sockets


@pytest.fixture(autouse=True, scope="module")
def _sockets_are_collected() -> Iterator[None]:
    """Those of a client whose brokers were killed, before they are blamed on a test of another module."""
    yield
    if "kafka" in sys.modules:
        collect_sockets()
