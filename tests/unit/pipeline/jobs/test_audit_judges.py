"""What an audit says of a single value, for JSON and for Avro in each of its frames."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.jobs.audit.avro_judge import AvroJudge
from goqueue.pipeline.jobs.audit.findings import judge_of, slices
from goqueue.pipeline.jobs.audit.framing import Framing
from goqueue.pipeline.jobs.audit.json_judge import JsonJudge, pointer
from goqueue.pipeline.jobs.audit.outcomes import VALID, Judge, Outcome, Verdict
from goqueue.pipeline.jobs.audit.schemas import FileSchema, Schema, SchemaKind

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "lines": {"type": "array", "items": {"type": "string"}}},
    "required": ["id"],
}
ORDER_AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}


def _schema(document: object, kind: SchemaKind = SchemaKind.JSON, name: str = "s") -> Schema:
    return Schema(kind, json.dumps(document), name)


def _json(document: object = ORDER, new: object = None) -> JsonJudge:
    return JsonJudge(_schema(document), None if new is None else _schema(new))


def _avro(framing: Framing = Framing.AUTO, new: object = None) -> AvroJudge:
    kind = SchemaKind.AVRO
    return AvroJudge(_schema(ORDER_AVRO, kind), None if new is None else _schema(new, kind), framing)


def _encoded(order_id: int = 1, item: str = "tea") -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, ORDER_AVRO, {"id": order_id, "item": item})
    return out.getvalue()


def _marker() -> bytes:
    digest = fingerprint(to_parsing_canonical_form(ORDER_AVRO), "CRC-64-AVRO")
    return b"\xc3\x01" + bytes.fromhex(digest)


# -------------------------------------------------------------------- JSON


def test_value_that_fits_is_valid() -> None:
    assert _json().judge(b'{"id": 1, "lines": ["a"]}').now == VALID


def test_violation_says_where_in_the_document_and_what() -> None:
    now = _json().judge(b'{"id": 1, "lines": ["a", 7]}').now
    assert now == Outcome(Verdict.INVALID, "/lines/1", '7 is not of type "string"')


def test_violation_of_the_whole_document_has_an_empty_path() -> None:
    now = _json().judge(b"{}").now
    assert (now.verdict, now.path) == (Verdict.INVALID, "")
    assert '"id" is a required property' in now.message


@pytest.mark.parametrize("value", [b"", b"{", b"\xff\xfe", b'{"id": NaN}', b'{"id": 1} tail', b"[" * 100_000])
def test_value_that_is_no_json_is_unparsable(value: bytes) -> None:
    now = _json().judge(value).now
    assert now.verdict is Verdict.UNPARSABLE
    assert now.message


def test_confluent_frame_is_taken_off_json() -> None:
    assert _json().judge(b'\x00\x00\x00\x00\x07{"id": 1}').now == VALID


def test_new_schema_is_asked_of_the_same_value() -> None:
    stricter = ORDER | {"required": ["id", "lines"]}
    judged = _json(new=stricter).judge(b'{"id": 1}')
    assert judged.now == VALID
    assert judged.new is not None
    assert judged.new.verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("draft", "keyword"),
    [
        ("http://json-schema.org/draft-04/schema#", "definitions"),
        ("http://json-schema.org/draft-06/schema#", "definitions"),
        ("http://json-schema.org/draft-07/schema#", "definitions"),
        ("https://json-schema.org/draft/2019-09/schema", "$defs"),
        ("https://json-schema.org/draft/2020-12/schema", "$defs"),
    ],
)
def test_drafts_are_told_apart_by_their_name(draft: str, keyword: str) -> None:
    document = {"$schema": draft, keyword: {"n": {"type": "integer"}}, "$ref": f"#/{keyword}/n"}
    assert _json(document).judge(b"1").now == VALID
    assert _json(document).judge(b'"1"').now.verdict is Verdict.INVALID


def test_tuple_items_mean_what_their_draft_says() -> None:
    seven = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    latest = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "prefixItems": [{"type": "integer"}],
    }
    for document in (seven, latest):
        assert _json(document).judge(b'[1, "x"]').now == VALID
        assert _json(document).judge(b'["x"]').now.path == "/0"


def test_formats_are_checked_up_to_draft_7() -> None:
    seven = {"$schema": "http://json-schema.org/draft-07/schema#", "format": "date"}
    latest = {"$schema": "https://json-schema.org/draft/2020-12/schema", "format": "date"}
    assert _json(seven).judge(b'"yesterday"').now.verdict is Verdict.INVALID
    assert _json(latest).judge(b'"yesterday"').now == VALID


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("7", "it must be an object, true or false"),
        ('{"type": "nonsense"}', '"nonsense" is not valid'),
        ('{"$ref": "http://127.0.0.1:1/other.json"}', "put that definition into the schema itself"),
        ('{"$schema": "http://example.com/mine"}', "example.com/mine"),
    ],
)
def test_broken_json_schema_is_refused_with_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(PipelineError) as error:
        JsonJudge(Schema(SchemaKind.JSON, text, "orders.json"), None)
    assert "the schema 'orders.json' is" in str(error.value)
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_pointer_escapes_what_it_is_made_of() -> None:
    assert pointer(["a/b", 0, "c~d"]) == "/a~1b/0/c~0d"


# -------------------------------------------------------------------- Avro


@pytest.mark.parametrize(
    ("framing", "frame"),
    [
        (Framing.BARE, b""),
        (Framing.AUTO, b""),
        (Framing.CONFLUENT, b"\x00\x00\x00\x00\x07"),
        (Framing.AUTO, b"\x00\x00\x00\x00\x07"),
        (Framing.SINGLE_OBJECT, _marker()),
        (Framing.AUTO, _marker()),
    ],
)
def test_avro_value_is_found_behind_its_frame(framing: Framing, frame: bytes) -> None:
    assert _avro(framing).judge(frame + _encoded()).now == VALID


def test_bare_value_that_begins_like_a_frame_is_recognised() -> None:
    value = _encoded(order_id=0, item="abcdef")
    assert value[0] == 0
    assert _avro(Framing.AUTO).judge(value).now == VALID


@pytest.mark.parametrize("value", [b"", b"\x02", _encoded()[:-1], b"\xff" * 20, b"\x02\x06\xff\xff\xff"])
def test_avro_value_that_does_not_decode_is_invalid(value: bytes) -> None:
    now = _avro(Framing.BARE).judge(value).now
    assert now.verdict is Verdict.INVALID
    assert now.message


def test_bytes_behind_an_avro_value_are_a_violation() -> None:
    now = _avro(Framing.BARE).judge(_encoded() + b"xy").now
    assert now == Outcome(Verdict.INVALID, "", "2 bytes are left behind the value")


def test_missing_frame_makes_a_value_unparsable() -> None:
    assert _avro(Framing.CONFLUENT).judge(_encoded()).now.verdict is Verdict.UNPARSABLE
    assert _avro(Framing.SINGLE_OBJECT).judge(_encoded()).now.verdict is Verdict.UNPARSABLE


def test_fingerprint_of_another_schema_is_named() -> None:
    now = _avro(Framing.SINGLE_OBJECT).judge(b"\xc3\x01" + b"\x01" * 8 + _encoded()).now
    assert now == Outcome(
        Verdict.UNPARSABLE, "", "it was written with another schema, of fingerprint 0101010101010101"
    )


def test_new_avro_schema_must_read_what_the_old_one_wrote() -> None:
    with_default = {
        **ORDER_AVRO,
        "fields": [*ORDER_AVRO["fields"], {"name": "n", "type": "int", "default": 0}],
    }
    without = {**ORDER_AVRO, "fields": [*ORDER_AVRO["fields"], {"name": "n", "type": "int"}]}
    assert _avro(new=with_default).judge(_encoded()).new == VALID
    judged = _avro(new=without).judge(_encoded())
    assert judged.now == VALID
    assert judged.new is not None
    assert judged.new.verdict is Verdict.INVALID


def test_avro_breaks_only_where_the_data_does() -> None:
    """A symbol that the new schema dropped matters only for records that have it."""
    colours = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
    fewer = {"type": "enum", "name": "Colour", "symbols": ["RED"]}
    kind = SchemaKind.AVRO
    judge = AvroJudge(_schema(colours, kind), _schema(fewer, kind), Framing.BARE)
    assert judge.judge(b"\x00").new == VALID
    assert judge.judge(b"\x02").now == VALID
    assert judge.judge(b"\x02").new != VALID


@pytest.mark.parametrize("text", ["{", "{}", '{"type": "record", "fields": []}', '"nonsense"', "[]x"])
def test_broken_avro_schema_is_refused_with_one_sentence(text: str) -> None:
    with pytest.raises(PipelineError, match=r"the schema 'o\.avsc' is (no Avro schema|not JSON): .+"):
        AvroJudge(Schema(SchemaKind.AVRO, text, "o.avsc"), None, Framing.AUTO)


# -------------------------------------------------------------------- either


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_get_a_verdict_and_no_error(value: bytes) -> None:
    judges: list[Judge] = [_json(new=True), *(_avro(framing, new=ORDER_AVRO) for framing in Framing)]
    for judge in judges:
        judged = judge.judge(value)
        assert judged.now.verdict in Verdict
        assert judged.new is not None


def test_two_schemas_must_be_of_one_kind() -> None:
    with pytest.raises(PipelineError, match="'a' is of kind json and 'b' of kind avro"):
        judge_of(_schema(True, name="a"), _schema(ORDER_AVRO, SchemaKind.AVRO, "b"), Framing.AUTO)


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=5)), st.integers(0, 3), st.integers(0, 3))
def test_slices_are_the_values_also_of_a_part_of_an_array(
    values: list[bytes | None], skipped: int, left_out: int
) -> None:
    array = pa.array(values, pa.binary())
    part = array[skipped : max(skipped, len(values) - left_out)]
    found = [None if one is None else bytes(one) for one in slices(part)]
    assert found == part.to_pylist()


def test_kind_of_a_file_follows_its_name_unless_said(tmp_path: Path) -> None:
    path = tmp_path / "o.avsc"
    path.write_text('"string"')
    assert FileSchema(str(path)).load().kind is SchemaKind.AVRO
    assert FileSchema(str(path), SchemaKind.JSON).load().kind is SchemaKind.JSON


def test_schema_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"'.*none\.json' cannot be read: no such file"):
        FileSchema(str(tmp_path / "none.json")).load()
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PipelineError, match="is not UTF-8 text"):
        FileSchema(str(binary)).load()
