from __future__ import annotations

import json

import pytest

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.source.offsets import FROM, MARKER, Offsets, is_marker, positions
from goqueue.pipeline.span import Place, Span

A0, A1, B0 = Place("a", 0), Place("a", 1), Place("b", 0)


def test_offset_is_sorted_json_and_comes_back_the_same() -> None:
    offsets = Offsets({B0: 3, Place("a", 10): 2, Place("a", 2): 1})
    text = json.dumps(offsets.to_json())
    assert text == '{"a": {"2": 1, "10": 2}, "b": {"0": 3}}'
    assert Offsets.of(json.loads(text)) == offsets


def test_beginnings_of_new_partitions_travel_in_the_end() -> None:
    offsets = Offsets({A0: 5, A1: 9}, {A1: 7})
    assert offsets.to_json() == {FROM: {"a": {"1": 7}}, "a": {"0": 5, "1": 9}}
    assert Offsets.of(offsets.to_json()) == offsets
    assert positions(offsets.to_json()) == {A0: 5, A1: 9}


def test_marker_is_never_the_offset_of_a_query_that_has_begun() -> None:
    assert is_marker(MARKER)
    assert not is_marker(Offsets().to_json())
    assert not is_marker(Offsets({A0: 0}).to_json())


def test_spans_lie_between_two_offsets_and_beginnings_come_first() -> None:
    before = Offsets({A0: 5, A1: 4, B0: 8})
    after = Offsets({A0: 7, A1: 4, B0: 2, Place("c", 0): 3, Place("d", 0): 6}, {B0: 0, Place("c", 0): 1})
    assert after.spans_since(before) == [
        Span("a", 0, 5, 7),
        Span("b", 0, 0, 2),
        Span("c", 0, 1, 3),
        Span("d", 0, 0, 6),
    ]


def test_backward_span_is_for_the_caller_to_judge() -> None:
    assert Offsets({A0: 3}).spans_since(Offsets({A0: 9})) == [Span("a", 0, 9, 3)]


@pytest.mark.parametrize(
    "offset", [{"a": 3}, {"a": {"x": 3}}, {"a": {"0": "3"}}, {FROM: [1]}, {FROM: {"a": 1}}]
)
def test_offset_of_another_source_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(PipelineError, match="it belongs to another query; use another checkpointLocation"):
        Offsets.of(offset)
