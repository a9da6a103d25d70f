"""Fixtures that every kind of test may use."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.support.broker import Broker
from xdist.remote import Producer
from xdist.scheduler import LoadGroupScheduling

# A machine that is busy with something else makes an example slow, but not wrong.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Shells start what runs in the background with Ctrl-C ignored, and so would all be that a test starts and ends that way.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A running broker of its own, with its data in the test's folder."""
    with Broker(tmp_path / "data") as running:
        yield running


_SHARING = {
    f"tests/integration/{name}.py"
    for name in ("test_java_share", "test_cluster_commands", "test_cluster_mtls")
}


class _Scheduling(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
    """What shares something dear to start goes to one worker, one after the other: a Spark session for all tests of the
    pipeline, a Java process for those of share consumers, a cluster. The marker that says so is not passed on by this pytest."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path.startswith("tests/pipeline/"):
            return "spark"
        return path if path in _SHARING else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadGroupScheduling | None:
    return _Scheduling(config, log) if config.getvalue("dist") == "loadgroup" else None
