"""What docs/cluster.md says of timings and routes is so."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import structs

from goqueue.api.http.routes import ROUTES
from goqueue.cli.profiles import FAST_TIMINGS
from goqueue.core.cluster.liveness import Status
from goqueue.node.config import ClusterConfig

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "cluster.md").read_text()


def part(heading: str) -> str:
    return PAGE.split(f"\n### {heading}\n")[1].split("\n## ")[0].split("\n### ")[0]


def test_the_timings_are_those_of_the_code() -> None:
    defaults = structs.asdict(ClusterConfig())
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \|", part("Timings"), re.MULTILINE)
    assert {name: int(value) for name, value, _ in rows} == {name: defaults[name] for name, _, _ in rows}
    assert {name: int(fast) for name, _, fast in rows} == {
        name: FAST_TIMINGS.get(name, defaults[name]) for name, _, _ in rows
    }
    timings = {name for name in defaults if name.endswith(("_ms", "_ms_max"))}
    assert {name for name, _, _ in rows} == timings


def test_the_routes_are_those_there_are() -> None:
    paths = {re.sub(r"\{\w+\}", "{}", route.path) for route in ROUTES}
    told: set[str] = set()
    for cell in re.findall(r"^\| (`.*?) \|", part("Over REST"), re.MULTILINE):
        for path in re.findall(r"(/[a-z]+/[^`\s,]+)", cell):
            told.add(re.sub(r"\{\w+\}", "{}", path))
    assert told <= paths
    of_clusters = ("/cluster/", "/admin/reassignment", "/admin/coordinators")
    assert {path for path in paths if path.startswith(of_clusters)} <= told


def test_every_status_of_a_node_is_told() -> None:
    assert all(f"| `{status.value}` |" in PAGE for status in Status)
