"""Fixtures that every kind of test may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.broker import Broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A running broker of its own, with its data in the test's folder."""
    with Broker(tmp_path / "data") as running:
        yield running
