"""docs/kafka.md says what is served."""

from __future__ import annotations

from pathlib import Path

from goqueue.cli import kafka_docs

DOCS = Path(__file__).parents[3] / "docs" / "kafka.md"


def test_the_documentation_of_the_kafka_protocol_is_up_to_date() -> None:
    assert DOCS.read_text(encoding="utf-8") == kafka_docs.render(), "run make docs"


def test_every_note_is_about_an_api_that_is_served() -> None:
    text = kafka_docs.render()
    assert all(f"| {note} |" in text for note in kafka_docs._NOTES.values())
