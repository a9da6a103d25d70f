"""What a checkpoint folder says: how far each query is, and of which definition it is.

    definition.json        what the queries read and where they write, as they were first started
    queries/{query}/       Spark's own checkpoint of a streaming query
    lock, run.json, stop   who runs it (see `state.py`)

Spark takes any checkpoint for any query and goes on from its offsets, whatever they are offsets of. So a definition that
changed in a way that would lose or double rows is refused here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from goqueue.pipeline.declarative.checks import Inputs
from goqueue.pipeline.declarative.files import write_atomically
from goqueue.pipeline.declarative.spec import Definition, PipelineSpec, SinkSpec, SourceSpec
from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.source.offsets import positions
from goqueue.pipeline.span import Place

DEFINITION: Final = "definition.json"
QUERIES: Final = "queries"
_FILES_LOG: Final = "_spark_metadata"  # of a folder: which files each batch of a stream added
_LOGGED = re.compile(r"(\d+)(?:\.compact)?")
_NUMBER = re.compile(r"\d+")
_OFFSET_LOG_VERSION: Final = "v1"


class QueryShape(msgspec.Struct, frozen=True):
    """What must stay the same while a checkpoint is used."""

    sources: dict[str, str]  # by name: the topics or the path
    sink: str
    tables: dict[str, str]  # sources and views on the way, by name: a digest of their definition


class Shapes(msgspec.Struct, frozen=True):
    queries: dict[str, QueryShape]
    version: int = 1


@dataclass(frozen=True, slots=True)
class Position:
    """Where a query goes on. A batch that was begun and not finished is repeated."""

    batch_id: int
    is_repeated: bool
    offsets: Mapping[Place, int]


def query_folder(definition: Definition, query: str) -> Path:
    return definition.checkpoint / QUERIES / query


def shape_of(
    definition: Definition, sink: SinkSpec, sources: Sequence[SourceSpec], inputs: Inputs
) -> QueryShape:
    tables = {source.name: _digest(msgspec.json.encode(_without_options(source))) for source in sources}
    tables |= {
        name: _digest(text.encode())
        for name, text in _views_on_the_way(definition.spec, sink, inputs).items()
    }
    return QueryShape(
        {source.name: _what(source) for source in sources if source.is_stream}, _where(sink), tables
    )


def check_unchanged(definition: Definition, shapes: Mapping[str, QueryShape]) -> None:
    """Refuses a checkpoint of another definition; remembers this one otherwise."""
    file = definition.checkpoint / DEFINITION
    before = _remembered(file)
    problems = []
    for name, shape in shapes.items():
        folder = query_folder(definition, name)
        if name in before and (folder / "offsets").is_dir():
            has_state = (folder / "state").is_dir()
            problems += [
                f"{change}. Its checkpoint {folder} goes on from what was read before: give the sink another name, or "
                f"remove that folder to begin {name} anew"
                for change in changes(name, before[name], shape, has_state=has_state)
            ]
    if problems:
        raise PipelineError("\n".join(problems))
    write_atomically(file, msgspec.json.encode(Shapes({**before, **shapes})))


def check_folder(definition: Definition, query: str, sink: SinkSpec) -> None:
    """Refuses a folder with files of another stream, or of this one before its checkpoint was removed. Spark numbers batches by
    query and remembers them by folder: a batch whose number the folder has already is left out without a word."""
    if sink.path is None or "://" in sink.path:
        return
    folder = Path(definition.located(sink.path))
    log = folder / _FILES_LOG
    names = [_LOGGED.fullmatch(entry.name) for entry in log.iterdir()] if log.is_dir() else []
    written = max((int(name[1]) for name in names if name), default=-1)
    planned = max(_numbers(query_folder(definition, query) / "offsets"), default=-1)
    if written > planned:
        raise PipelineError(
            f"query {query} would write to {folder}, where another query, or this one with another checkpoint, has written batches "
            f"up to {written}; Spark leaves out batches whose numbers are there: give the sink another path, or move "
            f"{folder} away"
        )


def changes(query: str, before: QueryShape, now: QueryShape, *, has_state: bool) -> list[str]:
    """What changed that must not. Without state, how rows are transformed may change from one batch to the next."""
    found = []
    if sorted(before.sources.values()) != sorted(now.sources.values()):
        found.append(f"query {query} read {_listed(before.sources)}, and now reads {_listed(now.sources)}")
    if before.sink != now.sink:
        found.append(f"query {query} wrote to {before.sink}, and now writes to {now.sink}")
    changed = [
        name for name in {**before.tables, **now.tables} if before.tables.get(name) != now.tables.get(name)
    ]
    if has_state and changed and not found:
        found.append(
            f"query {query} keeps windows, counts or joins of rows before, and {', '.join(changed)} changed since"
        )
    return found


def read_position(folder: Path) -> Position | None:
    """Where Spark will go on; None where nothing was read yet, or what is there cannot be read."""
    offsets = _numbers(folder / "offsets")
    if not offsets:
        return None
    last = offsets[-1]
    is_done = last in _numbers(folder / "commits")
    if is_done:
        return Position(last + 1, is_repeated=False, offsets=_offsets_in(folder / "offsets" / str(last)))
    before = folder / "offsets" / str(last - 1)
    return Position(last, is_repeated=True, offsets=_offsets_in(before) if before.exists() else {})


def _offsets_in(file: Path) -> dict[Place, int]:
    """Of all topics in an entry of Spark's offset log: a version, Spark's settings, and a line for each source."""
    lines = file.read_text().splitlines()
    if not lines or lines[0] != _OFFSET_LOG_VERSION:
        raise PipelineError(f"{file} begins with {lines[:1]}; this reads Spark's {_OFFSET_LOG_VERSION}")
    found: dict[Place, int] = {}
    for line in lines[2:]:
        try:
            offset = json.loads(line)
            places = positions(offset) if isinstance(offset, dict) else {}
        except (ValueError, PipelineError):  # a source that is not ours, or one without an offset yet
            continue
        for place, end in places.items():
            found[place] = min(end, found.get(place, end))
    return found


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if _NUMBER.fullmatch(entry.name))


def _remembered(file: Path) -> dict[str, QueryShape]:
    try:
        return dict(msgspec.json.decode(file.read_bytes(), type=Shapes).queries)
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise PipelineError(
            f"{file} cannot be read ({error}); it says what the checkpoint is of: restore it"
        ) from None


def _views_on_the_way(pipeline: PipelineSpec, sink: SinkSpec, inputs: Inputs) -> dict[str, str]:
    views = {view.name: view for view in pipeline.views}
    found: dict[str, str] = {}
    waiting = [sink.from_]
    while waiting:
        name = waiting.pop()
        if name in views and name not in found:
            view = views[name]
            mark = view.watermark
            found[name] = (
                f"{' '.join((view.sql or '').split())}|{view.python}|{mark and (mark.column, mark.delay)}"
            )
            waiting += inputs(view)
    return found


def _without_options(source: SourceSpec) -> SourceSpec:
    return msgspec.structs.replace(source, options={}, bad_rows="fail")


def _what(source: SourceSpec) -> str:
    topics = source.all_topics
    return f"topic {', '.join(sorted(topics))}" if topics else f"path {source.path}"


def _where(sink: SinkSpec) -> str:
    return f"topic {sink.topic}" if sink.topic else f"path {sink.path}" if sink.path else "the console"


def _listed(sources: Mapping[str, str]) -> str:
    return " and ".join(sorted(sources.values())) or "no stream"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
