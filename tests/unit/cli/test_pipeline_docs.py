"""The tables of options in the docs are what the code declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from goqueue.cli import pipeline_docs

DOCS = Path(__file__).parents[3] / "docs" / "pipeline"


@pytest.mark.parametrize("name", pipeline_docs.PAGES)
def test_options_in_the_docs_are_those_that_are_declared(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    rendered = pipeline_docs.render(page, pipeline_docs.PAGES[name])
    assert page == rendered, "run make docs"
    assert rendered.count("\n| `") >= len(pipeline_docs.PAGES[name])
