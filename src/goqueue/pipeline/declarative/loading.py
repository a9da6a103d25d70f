"""A pipeline file, whichever of the two forms it has."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from goqueue.pipeline.declarative.document import read_text, read_yaml
from goqueue.pipeline.declarative.problems import PipelineFileError, Problem
from goqueue.pipeline.declarative.spec import Definition
from goqueue.pipeline.declarative.sql_file import read_sql
from goqueue.pipeline.errors import PipelineError

FILES_MAX = 20


def load(file: Path, environment: Mapping[str, str] = os.environ) -> Definition:
    """Its structure is right; whether its parts fit together is for `checks.check`."""
    match file.suffix.lower():
        case ".yaml" | ".yml":
            return read_yaml(file, read_text(file), environment)
        case ".sql":
            return read_sql(file, read_text(file), environment)
        case _:
            raise PipelineFileError(str(file), [Problem("", "a pipeline is a .yaml, .yml or .sql file")])


def load_all(files: Sequence[Path]) -> list[Definition]:
    """Several pipelines for one process: each has a folder of its own. The problems of all files are one error's."""
    if len(files) > FILES_MAX:
        raise PipelineError(f"there are {len(files)} files; one process runs at most {FILES_MAX} pipelines")
    found, problems = [], []
    for file in files:
        try:
            found.append(load(file))
        except PipelineFileError as error:
            problems.append(str(error))
    if problems:
        raise PipelineError("\n".join(problems))
    seen: dict[Path, Definition] = {}
    for definition in found:
        folder = definition.checkpoint.resolve()
        if folder in seen:
            raise PipelineError(
                f"{seen[folder].file} and {definition.file} have the same checkpoint folder {folder}; give each its own name"
            )
        seen[folder] = definition
    return found


def with_bootstrap(definition: Definition, bootstrap: str | None) -> Definition:
    """The same pipeline on another broker."""
    if bootstrap is None:
        return definition
    broker = msgspec.structs.replace(definition.spec.broker, bootstrap=bootstrap)
    return replace(definition, spec=msgspec.structs.replace(definition.spec, broker=broker))
