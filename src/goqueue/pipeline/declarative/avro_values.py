"""Avro values as JSON text, in the workers: Spark itself reads Avro only with a JAR.

The text is then parsed with the source's own schema, as JSON is. Frames of Confluent's serializers and of single objects are
recognised; bare Avro may begin like one, so a value that does not decode behind its supposed frame is tried without it.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

from goqueue.pipeline.errors import PipelineError

SCHEMA_BYTES_MAX: Final = 1 << 20
_CONFLUENT_BYTES: Final = 5
_SINGLE_OBJECT: Final = (b"\xc3\x01", 10)


def read_avro_schema(path: str) -> str:
    """The text of a schema file that fastavro takes."""
    import fastavro

    file = Path(path)
    try:
        if file.stat().st_size > SCHEMA_BYTES_MAX:
            raise PipelineError(f"the schema file {path} has more than {SCHEMA_BYTES_MAX} bytes")
        text = file.read_text()
        fastavro.parse_schema(json.loads(text))
    except OSError as error:
        raise PipelineError(f"the schema file {path} cannot be read: {error.strerror}") from None
    except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise PipelineError(f"the schema file {path} is no Avro schema: {error}") from None
    return text


def json_of_avro(schema: str) -> Callable[[Column], Column]:
    """A function of columns: bytes to JSON text, null where they are no value of the schema."""

    def decode(values: pa.Array) -> pa.Array:
        read = reader_of(schema)
        return pa.array([None if value is None else read(value) for value in values.to_pylist()], pa.string())

    decode.__annotations__ = {
        "values": pa.Array,
        "return": pa.Array,
    }  # Spark looks at them, and they are texts here
    udf: Callable[[Column], Column] = arrow_udf(decode, "string")  # type: ignore[call-overload]  # the kind is in the annotations
    return udf


def reader_of(schema: str) -> Callable[[bytes], str | None]:
    import fastavro

    parsed = fastavro.parse_schema(json.loads(schema))

    def read(value: bytes) -> str | None:
        for start in _starts(value):
            stream = io.BytesIO(value[start:])
            try:
                found = fastavro.schemaless_reader(stream, parsed, None)
            except Exception:  # noqa: BLE001 - fastavro raises whatever the bytes lead it to
                continue
            if stream.read(1) == b"":
                return json.dumps(found, default=_plain)
        return None

    return read


def _starts(value: bytes) -> list[int]:
    marker, length = _SINGLE_OBJECT
    if value.startswith(b"\0") and len(value) > _CONFLUENT_BYTES:
        return [_CONFLUENT_BYTES, 0]
    if value.startswith(marker) and len(value) > length:
        return [length, 0]
    return [0]


def _plain(value: Any) -> object:  # Any: what a logical type is read as
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON")
