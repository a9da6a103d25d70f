"""The parts of a run that need no cluster: shapes of networks, histories on disk, and what a summary says."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tests.chaos.checkers import check
from tests.chaos.history import Event, Op, Phase, Place, Recorder, read_history
from tests.chaos.load.registry import LOADS, with_needs
from tests.chaos.namespaces import why_not
from tests.chaos.shapes import SHAPES, bridge, halves, one_way, ring
from tests.chaos.summary import describe, unavailability

FIVE = range(1, 6)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_the_same_for_the_same_seed_and_nobody_is_cut_from_itself(name: str) -> None:
    cuts = SHAPES[name](FIVE, random.Random(7))
    assert cuts == SHAPES[name](FIVE, random.Random(7))
    assert all(source != target for source, target in cuts)


def test_a_one_way_cut_leaves_the_other_way_open() -> None:
    for seed in range(20):
        cuts = one_way(FIVE, random.Random(seed))
        assert cuts
        assert all((target, source) not in cuts for source, target in cuts)


def test_halves_are_a_majority_and_the_rest() -> None:
    cuts = halves(FIVE, random.Random(1))
    assert len(cuts) == 2 * 3 * 2
    assert {(target, source) for source, target in cuts} == cuts


def test_a_bridge_sees_both_sides() -> None:
    cuts = bridge(FIVE, random.Random(1))
    assert set(FIVE) - {source for source, _ in cuts} != set()


def test_in_a_ring_everybody_sees_two_others() -> None:
    cuts = ring(FIVE, random.Random(1))
    assert all(sum(source == node for source, _ in cuts) == 2 for node in FIVE)


def test_a_history_is_read_as_it_was_written_and_by_time(tmp_path: Path) -> None:
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for path in paths:
        with path.open("wb") as file:
            recorder = Recorder(file, path.stem)
            number = recorder.invoke("p", Op.PUBLISH, topic="t", value="v")
            recorder.record("p", Op.POLL, Phase.OK, number=number, places=[Place(1, 2, "v")])
    with paths[0].open("ab") as file:
        file.write(b'{"at_us": 1, "lo')  # of a process that was killed
    history = read_history(paths)
    assert [event.load for event in history] == ["one", "one", "two", "two"]
    assert history[1].places == (Place(1, 2, "v"),)


def test_a_load_comes_with_what_it_needs_and_who_writes_comes_first() -> None:
    assert with_needs(["read"]) == ["produce", "read"]
    assert with_needs(LOADS) == list(LOADS)


def _event(at_ms: int, op: Op, phase: Phase = Phase.OK, **values: int) -> Event:
    return Event(at_ms * 1_000, "produce", "kill" if op is Op.FAULT else "p", op, phase, **values)  # type: ignore[arg-type]  # ints


def test_unavailability_is_from_the_last_success_before_a_fault_to_the_first_after_it() -> None:
    history = [
        _event(0, Op.PUBLISH, partition=0, offset=0),
        _event(100, Op.PUBLISH, partition=0, offset=1),
        _event(110, Op.FAULT, Phase.INVOKE),
        _event(120, Op.PUBLISH, partition=1, offset=0),
        _event(900, Op.PUBLISH, partition=0, offset=2),
        _event(950, Op.PUBLISH, partition=0, offset=3),
    ]
    (gap,) = unavailability(history)["produce", Op.PUBLISH]
    assert gap.ms == 800


def test_a_summary_says_what_was_found() -> None:
    history = [
        _event(0, Op.FAULT, Phase.INVOKE),
        Event(1_000, "produce", "p", Op.PUBLISH, Phase.INVOKE, number=1, topic="t", value="v"),
        Event(2_000, "produce", "p", Op.PUBLISH, Phase.OK, number=1, topic="t", partition=0, offset=0),
        Event(3_000, "final", "final", Op.FINAL, Phase.OK, topic="t", partition=0, offset=0),
    ]
    text = describe(history, check(history))
    assert "unseen 1" in text
    assert "kill 1" in text
    assert "t/0@0" in text


def test_a_machine_without_the_program_for_namespaces_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "`ip`" in (why_not() or "")
