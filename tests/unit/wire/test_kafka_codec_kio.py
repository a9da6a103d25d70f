"""Every message in every version against `kio`, whose classes are generated from Apache Kafka's own definitions."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_writer
from kio.static.primitive import Records

from goqueue.wire.codec import Output, request_reader, request_writer, response_reader, response_writer
from goqueue.wire.schema import NO_UUID, Field, MessageSchema, api_key, api_names, request_schema
from goqueue.wire.schema import response_schema as _response_schema

SCRIPT = Path(__file__).parents[3] / "scripts" / "kafka_schemas.py"
EXAMPLES = settings(
    max_examples=int(os.environ.get("GOQUEUE_CODEC_EXAMPLES", "3")),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

OURS = ("enrol_in_joint", "end_joint", "ask_queue")
KAFKAS = [name for name in api_names() if name not in OURS]

st.register_type_strategy(Records, st.binary().map(Records))


def versions_of(schema: MessageSchema) -> list[int]:
    """First and last of each layout: what is in between is the same (the script that wrote the layouts compared)."""
    return sorted({version for bounds in schema.versions() for version in bounds})


def plain(value: Any, field: Field, *, is_item: bool = False) -> Any:  # of any type that kio has
    """What kio calls a value, as we do: numbers for times, bytes for ids."""
    if field.array and not is_item:
        return None if value is None else [plain(item, field, is_item=True) for item in value]
    match value:
        case None if field.type == "uuid":
            return NO_UUID
        case None if field.type.startswith("int"):
            return -1
        case timedelta():
            return value // timedelta(milliseconds=1)
        case datetime():
            return round(value.timestamp() * 1_000)
        case UUID():
            return value.bytes
        case Enum():
            return value.value
    if field.struct and value is not None:
        return plain_struct(value, field.fields)
    return value


def plain_struct(value: Any, fields: tuple[Field, ...]) -> dict[str, Any]:
    return {field.name: plain(_member(value, field.name), field) for field in fields}


def _member(value: Any, name: str) -> Any:
    """kio's timedeltas have no unit in their names."""
    return getattr(value, name) if hasattr(value, name) else getattr(value, name.removesuffix("_ms"))


def ours(value: Any, fields: tuple[Field, ...]) -> dict[str, Any]:
    """One of our structs as far as a version has it."""
    found: dict[str, Any] = {}
    for field in fields:
        member = getattr(value, field.name)
        if field.struct and member is not None:
            member = (
                [ours(item, field.fields) for item in member] if field.array else ours(member, field.fields)
            )
        found[field.name] = list(member) if field.array and member is not None else member
    return found


def encoded_by_kio(kind: type, message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(kind)(out, message)
    return out.getvalue()


def check(
    data: st.DataObject, kind: type, schema: MessageSchema, version: int, read: Any, write: Any
) -> None:
    message = data.draw(st.from_type(kind))
    encoded = encoded_by_kio(kind, message)
    layout = schema.layout(version)

    decoded = read(encoded, 0)
    assert ours(decoded, layout.fields) == plain_struct(message, layout.fields)

    out = Output()
    write(out, decoded)
    assert bytes(out) == encoded


@pytest.mark.parametrize("api", KAFKAS)
@given(data=st.data())
@EXAMPLES
def test_requests_of_every_version_are_read_and_written_as_kio_does(api: str, data: st.DataObject) -> None:
    for version in versions_of(request_schema(api)):
        kind = load_request_schema(api_key(api), version)
        check(
            data,
            kind,
            request_schema(api),
            version,
            request_reader(api, version),
            request_writer(api, version),
        )


@pytest.mark.parametrize("api", KAFKAS)
@given(data=st.data())
@EXAMPLES
def test_responses_of_every_version_are_read_and_written_as_kio_does(api: str, data: st.DataObject) -> None:
    for version in versions_of(_response_schema(api)):
        kind = load_response_schema(api_key(api), version)
        check(
            data,
            kind,
            _response_schema(api),
            version,
            response_reader(api, version),
            response_writer(api, version),
        )


def test_schemas_are_those_of_kio() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
