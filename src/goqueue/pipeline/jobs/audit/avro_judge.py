"""Avro values against a schema: each must decode whole, to its last byte.

The new schema is asked as Avro's readers ask: values written with the old one must resolve to it. Where the framing is not
said it is recognised; bare Avro may itself begin like a frame, so a value that does not decode behind its supposed frame
is tried without it.
"""

from __future__ import annotations

import io
import struct
from typing import Any, Final

import fastavro
import msgspec
from fastavro.schema import (
    SchemaParseException,
    UnknownType,
    fingerprint,
    parse_schema,
    to_parsing_canonical_form,
)

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.jobs.audit.framing import (
    CONFLUENT_BYTES,
    SINGLE_OBJECT_BYTES,
    SINGLE_OBJECT_MARKER,
    Framing,
    has_confluent_frame,
)
from goqueue.pipeline.jobs.audit.outcomes import VALID, Judged, Outcome, invalid, unparsable
from goqueue.pipeline.jobs.audit.schemas import Schema

_Parsed = Any  # fastavro's form of a schema: dicts, lists and names
# What fastavro raises over bytes that are not of the schema; resolution errors have no common base.
_FAILURES: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,
    fastavro.read.SchemaResolutionError,
    struct.error,
)


class AvroJudge:
    def __init__(self, schema: Schema, new: Schema | None, framing: Framing) -> None:
        self._now = compile_avro(schema)
        self._new = None if new is None else compile_avro(new)
        self._framing = framing
        digest = fingerprint(to_parsing_canonical_form(self._now), "CRC-64-AVRO")
        self._marker = SINGLE_OBJECT_MARKER + bytes.fromhex(digest)

    def judge(self, value: bytes | memoryview) -> Judged:
        body: bytes | Outcome = unparsable("it is empty")
        outcome = VALID
        for body in self._bodies(bytes(value)):
            outcome = body if isinstance(body, Outcome) else _read(body, self._now, None)
            if outcome is VALID:
                break
        if self._new is None:
            return Judged(outcome)
        if outcome is not VALID or isinstance(body, Outcome):
            return Judged(outcome, outcome)
        return Judged(outcome, _read(body, self._now, self._new))

    def _bodies(self, value: bytes) -> list[bytes | Outcome]:
        """What may be the encoded value, the likeliest first."""
        match self._framing:
            case Framing.BARE:
                return [value]
            case Framing.CONFLUENT:
                if has_confluent_frame(value):
                    return [value[CONFLUENT_BYTES:]]
                return [unparsable("it does not begin with a zero byte and the id of a schema")]
            case Framing.SINGLE_OBJECT:
                return [self._single_object(value)]
            case Framing.AUTO:
                if value.startswith(self._marker):
                    return [value[SINGLE_OBJECT_BYTES:], value]
                if has_confluent_frame(value):
                    return [value[CONFLUENT_BYTES:], value]
                return [value]

    def _single_object(self, value: bytes) -> bytes | Outcome:
        if value.startswith(self._marker):
            return value[SINGLE_OBJECT_BYTES:]
        if value.startswith(SINGLE_OBJECT_MARKER) and len(value) >= SINGLE_OBJECT_BYTES:
            other = value[len(SINGLE_OBJECT_MARKER) : SINGLE_OBJECT_BYTES].hex()
            return unparsable(f"it was written with another schema, of fingerprint {other}")
        return unparsable("it does not begin with C3 01 and the fingerprint of a schema")


def compile_avro(schema: Schema) -> _Parsed:
    """An error names what is wrong with the schema."""
    try:
        document = msgspec.json.decode(schema.text)
    except msgspec.DecodeError as error:
        raise PipelineError(f"the schema {schema.name!r} is not JSON: {error}") from None
    try:
        return parse_schema(document)
    except (SchemaParseException, UnknownType, *_FAILURES) as error:
        raise PipelineError(f"the schema {schema.name!r} is no Avro schema: {_told(error)}") from None


def _read(body: bytes, schema: _Parsed, reader: _Parsed) -> Outcome:
    source = io.BytesIO(body)
    try:
        fastavro.schemaless_reader(source, schema, reader)
    except _FAILURES as error:
        return invalid(_told(error))
    left_bytes = len(body) - source.tell()
    return VALID if not left_bytes else invalid(f"{left_bytes} bytes are left behind the value")


def _told(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
