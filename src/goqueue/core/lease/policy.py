"""How a group is to be served on a topic."""

from __future__ import annotations

from msgspec import Struct

from goqueue.core.lease.events import Target


class LeasePolicy(Struct, frozen=True):
    retry_count_max: int = 3
    backoff_ms: int = 1_000
    backoff_ms_max: int = 60_000
    backoff_factor: int = 2
    dead_letters: Target | None = None  # None: there is nowhere to go, so retries never end
    keeps_key_order: bool = False

    def backoff_after(self, deliveries: int) -> int:
        """How long a record rests after it has failed for the n-th time."""
        exponent = min(deliveries - 1, 40)  # enough to reach any cap
        return min(self.backoff_ms * int(self.backoff_factor**exponent), self.backoff_ms_max)

    def is_exhausted(self, deliveries: int) -> bool:
        return self.dead_letters is not None and deliveries > self.retry_count_max
