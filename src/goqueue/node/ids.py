"""Names that nothing else has, injected so that simulation owns their chance."""

from __future__ import annotations

import uuid
from typing import Protocol


class Ids(Protocol):
    def fresh(self) -> str:
        """Never the same twice, also across restarts."""


class RandomIds:
    def fresh(self) -> str:
        return str(uuid.uuid4())
