"""Where a schema comes from, and what it is: text of a kind, small enough to cross to every task."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from goqueue.pipeline.errors import PipelineError

SCHEMA_BYTES_MAX: Final = 10 * 1024 * 1024
_AVRO_SUFFIX: Final = ".avsc"


class SchemaKind(StrEnum):
    JSON = "json"
    AVRO = "avro"


@dataclass(frozen=True, slots=True)
class Schema:
    kind: SchemaKind
    text: str
    name: str  # for people: the file, or the subject and its version


class SchemaSource(Protocol):
    """Something that has a schema. Asked once, on the driver."""

    def load(self) -> Schema: ...


@dataclass(frozen=True, slots=True)
class FileSchema:
    """A file with JSON Schema, or Avro's JSON if its name ends with .avsc or `kind` says so."""

    path: str
    kind: SchemaKind | None = None

    def load(self) -> Schema:
        path = Path(self.path)
        try:
            if path.stat().st_size > SCHEMA_BYTES_MAX:
                raise PipelineError(
                    f"the schema file {self.path!r} is larger than {SCHEMA_BYTES_MAX} bytes; is it the right one?"
                )
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise PipelineError(
                f"the schema file {self.path!r} cannot be read: {(error.strerror or str(error)).lower()}"
            ) from None
        except UnicodeDecodeError:
            raise PipelineError(f"the schema file {self.path!r} is not UTF-8 text") from None
        by_name = SchemaKind.AVRO if path.suffix == _AVRO_SUFFIX else SchemaKind.JSON
        return Schema(self.kind or by_name, text, self.path)
