"""What a group may ask about topics, whoever keeps them."""

from __future__ import annotations

from typing import Protocol


class Topics(Protocol):
    def partition_count(self, name: str) -> int | None:
        """None where there is no such topic."""
        ...

    def names(self) -> list[str]:
        """Of every topic, sorted."""
        ...
