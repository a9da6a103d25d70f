"""What went wrong, in words, as an answer may hold it."""

from __future__ import annotations

from goqueue.model.errors import GoQueueError

_LENGTH_MAX = 1_000  # a sentence quotes what the client sent, and old versions have 16 bits for its length


def text_of(error: GoQueueError | None) -> str | None:
    if error is None:
        return None
    sentence = error.sentence
    return sentence if len(sentence) <= _LENGTH_MAX else f"{sentence[:_LENGTH_MAX]}..."
