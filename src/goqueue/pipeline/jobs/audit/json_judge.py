"""JSON values against JSON Schema, drafts 4 to 2020-12. A value is parsed once for both schemas.

References to other documents are refused: a schema must not make an audit's workers call somewhere.
"""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import msgspec

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.jobs.audit.framing import CONFLUENT_BYTES, has_confluent_frame
from goqueue.pipeline.jobs.audit.outcomes import VALID, Judged, Outcome, invalid, unparsable
from goqueue.pipeline.jobs.audit.schemas import Schema


class JsonJudge:
    def __init__(self, schema: Schema, new: Schema | None) -> None:
        self._now = compile_json(schema)
        self._new = None if new is None else compile_json(new)

    def judge(self, value: bytes | memoryview) -> Judged:
        if has_confluent_frame(value):  # no JSON begins with a zero byte
            value = value[CONFLUENT_BYTES:]
        try:
            document = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            outcome = unparsable(str(error) or "it is nested too deeply")
            return Judged(outcome, None if self._new is None else outcome)
        return Judged(
            _outcome(self._now, document), None if self._new is None else _outcome(self._new, document)
        )


def compile_json(schema: Schema) -> jsonschema_rs.Validator:
    """An error names what is wrong with the schema."""
    try:
        document = msgspec.json.decode(schema.text)
    except msgspec.DecodeError as error:
        raise PipelineError(f"the schema {schema.name!r} is not JSON: {error}") from None
    if not isinstance(document, dict | bool):
        raise PipelineError(
            f"the schema {schema.name!r} is no JSON Schema: it must be an object, true or false"
        )
    try:
        return jsonschema_rs.validator_for(document, retriever=_refuse)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        first = str(getattr(error, "message", error)).splitlines()[0]
        raise PipelineError(f"the schema {schema.name!r} is no JSON Schema: {first}") from None


def pointer(path: list[str | int]) -> str:
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def _outcome(validator: jsonschema_rs.Validator, document: Any) -> Outcome:  # whatever JSON has
    if validator.is_valid(document):
        return VALID
    error = next(iter(validator.iter_errors(document)))
    return invalid(error.message, pointer(error.instance_path))


def _refuse(uri: str) -> Any:  # never returns
    raise ValueError(f"it refers to {uri!r}; put that definition into the schema itself")
