"""What the configuration comes to, value by value, and what is wrong with it."""

from __future__ import annotations

from typing import NamedTuple

from goqueue.cli.config_keys import Value


class Problem(NamedTuple):
    """One thing to repair: where it stands, what is there, and what would be right."""

    source: str
    key: str
    value: str
    right: str

    def __str__(self) -> str:
        return f"{self.source}: {self.key} = {self.value}: {self.right}" if self.key else self.right


class Setting(NamedTuple):
    """A value in force and the source that set it."""

    key: str
    value: Value
    source: str

    def problem(self, right: str) -> Problem:
        return Problem(self.source, self.key, str(self.value), right)
