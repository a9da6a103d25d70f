"""The classes of requests by their names, as the layouts of the wire have them."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from goqueue.wire.schema import request_schema


@cache
def requests(api: str) -> Any:  # the classes are made at run time: mypy cannot know them
    return SimpleNamespace(**request_schema(api).classes)
