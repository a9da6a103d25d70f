"""What an operator is shown of a cluster."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from goqueue.cli.main import app
from goqueue.client.cluster_views import ClusterHealth
from goqueue.client.rest import RestClient


@pytest.mark.parametrize(
    ("health", "code", "said"),
    [
        (ClusterHealth("ok", "node-1", 0, 0, []), 0, ""),
        (
            ClusterHealth("degraded", "node-1", 0, 0, [], ["node-2"]),
            1,
            "not counted when something is decided: node-2",
        ),
        (ClusterHealth("degraded", "node-1", 0, 0, [], None), 1, "not known"),
    ],
)
def test_health_names_the_voters_that_do_not_count(
    health: ClusterHealth, code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RestClient, "cluster_health", lambda self: health)
    result = CliRunner().invoke(app, ["cluster", "health"])
    assert result.exit_code == code
    assert said in result.output
    assert ("not counted" in result.output) == bool(health.voters_not_counting)
