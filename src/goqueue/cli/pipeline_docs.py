"""Writes the tables of options into docs/pipeline/source.md and sink.md from what the code declares: `make docs`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goqueue.pipeline.connection import CONNECTION_OPTIONS
from goqueue.pipeline.options import Option
from goqueue.pipeline.sink.options import SINK_OPTIONS
from goqueue.pipeline.source.bounds import Earliest, Latest
from goqueue.pipeline.source.declared import SOURCE_OPTIONS

Options = Sequence[Option[Any]]  # Any: of whatever types
PAGES: dict[str, Options] = {
    "source.md": SOURCE_OPTIONS,
    "sink.md": (*SINK_OPTIONS, *CONNECTION_OPTIONS),
}
_WORDS = {"ssl.endpoint.identification.algorithm": "https"}  # where the value has another word for it
_BETWEEN = re.compile(r"(?<=<!-- options -->\n).*?(?=<!-- end of options -->)", re.DOTALL)


def render(page: str, options: Options) -> str:
    """The page with its table as it has to be."""
    rows = "".join(map(_row, options))
    table = f"\n| option | default | meaning |\n|---|---|---|\n{rows}\n"
    return _BETWEEN.sub(lambda _: table, page, count=1)


def _row(option: Option[Any]) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    default = _WORDS.get(option.name) or _default(option.default)
    return f"| {names} | {default} | {option.doc} |\n"


def _default(value: object) -> str:
    match value:
        case None | "" | ():
            return ""
        case bool():
            return str(value).lower()
        case Earliest():
            return "earliest"
        case Latest():
            return "latest"
        case _:
            return str(value)


if __name__ == "__main__":
    for name, declared in PAGES.items():
        path = Path(sys.argv[1]) / name
        path.write_text(render(path.read_text(encoding="utf-8"), declared), encoding="utf-8")
