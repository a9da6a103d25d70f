"""How long one call goes on trying, and how it waits in between."""

from __future__ import annotations

import random
import time

from goqueue.client.kafka.codes import ErrorCode
from goqueue.client.kafka.errors import KafkaError

_PAUSE_S_FIRST = 0.02
_PAUSE_S_MAX = 0.5
_JITTER = 0.2  # so that many tasks do not come back at the same moment
_UNKNOWN_TOPIC_S_MAX = 1.0  # a new topic is known everywhere by then; a misspelt one never is


class Patience:
    """Runs out `timeout_s` after it began or after the last progress."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self.renew()

    def renew(self) -> None:
        """There was progress."""
        self._started_s = time.monotonic()
        self._pause_s = _PAUSE_S_FIRST
        self._unknown_s: float | None = None  # since when a topic is unknown

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self._started_s >= self._timeout_s

    def pause(self, error: KafkaError) -> None:
        """Before the next attempt; raises the error if there is none."""
        if not error.is_retriable:
            raise error
        now_s = time.monotonic()
        tried_s = now_s - self._started_s
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._unknown_s = None
        elif self._unknown_s is None:
            self._unknown_s = now_s
        unknown_s = 0.0 if self._unknown_s is None else now_s - self._unknown_s
        if tried_s + self._pause_s > self._timeout_s or unknown_s > _UNKNOWN_TOPIC_S_MAX:
            error.sentence += f" (tried for {tried_s:.1f} s)"
            raise error
        time.sleep(self._pause_s * random.uniform(1 - _JITTER, 1 + _JITTER))
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)
