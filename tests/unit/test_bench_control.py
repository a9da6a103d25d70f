"""The control plane of large clusters as the benchmark runs it, at a size that takes a moment."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from bench.control import report
from bench.control.__main__ import measure
from bench.control.report import BEGIN, END, ControlReport, Size, write_docs
from bench.line import BenchFailed
from bench.machine import describe_machine


@pytest.fixture(scope="module")
def size() -> Size:
    return measure(7, 600)


def test_every_scene_has_decided_what_it_is_about(size: Size) -> None:
    decided = {scene.name: scene.spent.decision_count for scene in size.scenes}
    assert decided["join"] == 2 * 7  # registered, and no longer fenced
    assert decided["create"] == 6
    assert decided["idle"] == decided["lose_controller"] == 0
    assert decided["lose_node"] == 1


def test_a_node_that_dies_changes_each_of_its_partitions_once(size: Size) -> None:
    lost = next(scene.spent for scene in size.scenes if scene.name == "lose_node")
    assert 200 <= size.busy_leader_count < lost.change_count <= 600


def test_nothing_but_signs_of_life_is_sent_while_nothing_happens(size: Size) -> None:
    idle = next(scene.spent for scene in size.scenes if scene.name == "idle")
    assert 0 < idle.controller.sent_count <= 6 * (idle.virtual_ms // 1_000 + 1)


def test_the_table_is_put_between_its_markers(
    size: Size, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "scale.md"
    docs.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(report, "DOCS", docs)
    write_docs(ControlReport(datetime.now(UTC), 1.0, describe_machine(), [size]))
    text = docs.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "| 7 nodes, 600 partitions |" in text
    assert "old" not in text
    docs.write_text("no markers", encoding="utf-8")
    with pytest.raises(BenchFailed, match="markers"):
        write_docs(ControlReport(datetime.now(UTC), 1.0, describe_machine(), [size]))
