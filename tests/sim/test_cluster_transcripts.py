"""Failovers happen as the transcripts in `tests/golden/cluster` say. A change of them is read before it goes in."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.support.cluster_scenes import FOLDER, NAMES, transcript_of


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", NAMES)
def test_failover_happens_as_its_transcript_says(name: str) -> None:
    expected = (FOLDER / f"{name}.txt").read_text()
    assert transcript_of(name) == expected, "write it anew with: python -m tests.support.cluster_scenes"


def test_every_transcript_has_its_scene() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(NAMES)
