"""What a checkpoint says of itself: how far it is, and that it is not of another definition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from goqueue.pipeline.declarative.checkpoint import (
    QueryShape,
    changes,
    check_folder,
    check_unchanged,
    query_folder,
    read_position,
    shape_of,
)
from goqueue.pipeline.declarative.checks import inputs_of, sql_inputs
from goqueue.pipeline.declarative.document import read_yaml
from goqueue.pipeline.declarative.planning import Ends, Stretch, lag_of, stretches_of
from goqueue.pipeline.declarative.spec import Definition
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.span import Place


def _definition(
    folder: Path, topic: str = "orders", sql: str = "SELECT * FROM a", sink: str = "topic: z"
) -> Definition:
    text = (
        f"name: p\nsources: [{{name: a, topic: {topic}}}]\nviews: [{{name: v, sql: {sql}}}]\n"
        f"sinks: [{{name: out, from: v, {sink}}}]\n"
    )
    return read_yaml(folder / "x.yaml", text, {})


def _shapes(definition: Definition) -> dict[str, QueryShape]:
    (sink,) = definition.spec.sinks
    sources = inputs_of(definition.spec, sink.from_, sql_inputs)
    return {sink.name: shape_of(definition, sink, sources, sql_inputs)}


def _checked(definition: Definition) -> None:
    definition.checkpoint.mkdir(parents=True, exist_ok=True)
    check_unchanged(definition, _shapes(definition))


def _log(folder: Path, batch: int, *offsets: object, is_done: bool = True) -> None:
    """As Spark writes them."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines = ["v1", "{}", *(offset if isinstance(offset, str) else json.dumps(offset) for offset in offsets)]
    (folder / "offsets" / str(batch)).write_text("\n".join(lines))
    if is_done:
        (folder / "commits" / str(batch)).write_text("v1\n{}")


def test_position_is_behind_the_last_batch_that_was_done(tmp_path: Path) -> None:
    assert read_position(tmp_path) is None
    _log(tmp_path, 9, {"orders": {"0": 5, "1": 7}})
    _log(tmp_path, 10, {"orders": {"0": 8, "1": 7}}, "-", {"logOffset": 3})
    position = read_position(tmp_path)
    assert position is not None
    assert (position.batch_id, position.is_repeated) == (11, False)
    assert position.offsets == {Place("orders", 0): 8, Place("orders", 1): 7}


def test_batch_that_was_not_finished_is_repeated_from_where_it_began(tmp_path: Path) -> None:
    _log(tmp_path, 0, {"orders": {"0": 5}}, is_done=False)
    first = read_position(tmp_path)
    assert first is not None
    assert (first.batch_id, first.is_repeated, first.offsets) == (0, True, {})
    _log(tmp_path, 0, {"orders": {"0": 5}})
    _log(tmp_path, 1, {"orders": {"0": 9}}, is_done=False)
    second = read_position(tmp_path)
    assert second is not None
    assert (second.batch_id, second.is_repeated, second.offsets) == (1, True, {Place("orders", 0): 5})


def test_offset_log_of_another_version_is_not_guessed_at(tmp_path: Path) -> None:
    _log(tmp_path, 0, {})
    (tmp_path / "offsets" / "0").write_text("v7\n{}\n{}")
    with pytest.raises(PipelineError, match="v7"):
        read_position(tmp_path)


def test_other_topic_is_refused_with_what_changed_and_what_to_do(tmp_path: Path) -> None:
    before = _definition(tmp_path)
    _checked(before)
    _log(query_folder(before, "out"), 0, {})
    with pytest.raises(PipelineError) as raised:
        _checked(_definition(tmp_path, topic="payments"))
    told = str(raised.value)
    assert "query out read topic orders, and now reads topic payments" in told
    assert "give the sink another name, or remove that folder" in told
    with pytest.raises(PipelineError, match="wrote to topic z, and now writes to path z"):
        _checked(_definition(tmp_path, sink="path: z"))
    _checked(before)


def test_query_without_a_checkpoint_may_change(tmp_path: Path) -> None:
    _checked(_definition(tmp_path))
    _checked(_definition(tmp_path, topic="payments"))


def test_sql_may_change_unless_the_query_keeps_state_made_with_it(tmp_path: Path) -> None:
    before = _definition(tmp_path)
    _checked(before)
    folder = query_folder(before, "out")
    _log(folder, 0, {})
    changed = _definition(tmp_path, sql="SELECT x FROM a")
    (folder / "state").mkdir()
    with pytest.raises(
        PipelineError, match="keeps windows, counts or joins of rows before, and v changed since"
    ):
        _checked(changed)
    _checked(_definition(tmp_path, sql="SELECT  *  FROM a"))
    (folder / "state").rmdir()
    _checked(changed)


def test_folder_with_batches_that_the_checkpoint_does_not_know_is_refused(tmp_path: Path) -> None:
    definition = _definition(tmp_path, sink="path: lake")
    (sink,) = definition.spec.sinks
    check_folder(definition, "out", sink)  # no folder yet
    log = tmp_path / "lake" / "_spark_metadata"
    log.mkdir(parents=True)
    check_folder(definition, "out", sink)  # no batch yet
    for name in ("8", "9.compact", ".10.crc", ".11.tmp"):
        (log / name).touch()
    sentence = "query out would write to .*lake, where another query.* up to 9; .*another path"
    with pytest.raises(PipelineError, match=sentence):
        check_folder(definition, "out", sink)
    folder = query_folder(definition, "out")
    _log(folder, 8, {})
    with pytest.raises(PipelineError, match=sentence):
        check_folder(definition, "out", sink)
    _log(folder, 9, {}, is_done=False)  # its files were added, and then it was killed
    check_folder(definition, "out", sink)


def test_topics_and_object_stores_have_no_folder_to_look_at(tmp_path: Path) -> None:
    for where in ("topic: z", "path: 's3a://bucket/lake'"):
        definition = _definition(tmp_path, sink=where)
        check_folder(definition, "out", definition.spec.sinks[0])


def test_damaged_definition_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    definition = _definition(tmp_path)
    _checked(definition)
    (definition.checkpoint / "definition.json").write_text("{")
    with pytest.raises(PipelineError, match="cannot be read"):
        _checked(definition)


def test_same_topics_under_another_name_are_the_same_sources() -> None:
    before = QueryShape({"a": "topic orders"}, "topic z", {})
    assert changes("q", before, QueryShape({"b": "topic orders"}, "topic z", {}), has_state=False) == []


def test_plan_goes_on_from_the_checkpoint_or_begins_where_the_source_does(tmp_path: Path) -> None:
    (source,) = _definition(tmp_path).spec.sources
    zero, one = Place("orders", 0), Place("orders", 1)
    ends = Ends({zero: 2, one: 0}, {zero: 10, one: 4})
    fresh = stretches_of(source, ends, None)
    assert fresh == [Stretch("orders", 0, 2, 10), Stretch("orders", 1, 0, 4)]
    assert lag_of(fresh) == 12
    _log(tmp_path, 0, {"orders": {"0": 7}})
    later = stretches_of(source, ends, read_position(tmp_path))
    assert later == [Stretch("orders", 0, 7, 10), Stretch("orders", 1, 0, 4)]
    unknown = stretches_of(source, Ends(failure="gone"), read_position(tmp_path))
    assert unknown == [Stretch("orders", 0, 7, None)]
    assert lag_of(unknown) is None
