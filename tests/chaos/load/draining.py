"""When a load may end: when nothing is left of what others wrote for it, or when it does not come any further."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from tests.chaos.history import Op, Phase
from tests.chaos.load.job import Job

from goqueue.client.connection import ApiError, Connection, Unreachable, error_of

STUCK_S: Final = (
    75.0  # without a step, after everything has healed; longer than any session, lease or transaction
)
_LOOK_S: Final = 1.0
_ASK_S: Final = 3.0


class Left(NamedTuple):
    """What is left to be done; the text is empty when nothing is. Another mark means: some of it was done."""

    text: str
    mark: Hashable = None


Look = Callable[[], Left]


class Drain:
    """Whether a consumer may go yet: it has everything, or has not come any further for long. It is told once in the history
    whether anything was left then. A machine that is slow is not an anomaly."""

    def __init__(self, job: Job, process: str, look: Look) -> None:
        self._job = job
        self._process = process
        self._look = look
        self._look_at = 0.0
        self._mark: Hashable = None
        self._step_at: float | None = None  # when the last step was seen
        self._is_over = False

    @property
    def is_over(self) -> bool:
        if self._is_over or not self._job.stopping.is_set():
            return self._is_over
        if time.monotonic() < self._look_at:
            return False
        left = self._look()
        now = time.monotonic()
        self._look_at = now + _LOOK_S
        if self._step_at is None or (left.mark is not None and left.mark != self._mark):
            self._mark, self._step_at = left.mark, now
        if not left.text:
            self._end(Phase.OK, "")
        elif now > self._step_at + STUCK_S:
            self._end(Phase.UNKNOWN, f"no step in {STUCK_S:.0f} s: {left.text}")
        return self._is_over

    def _end(self, phase: Phase, note: str) -> None:
        self._is_over = True
        self._job.recorder.record(self._process, Op.DRAIN, phase, note=note)


def left_of_group(job: Job, group: str, topics: Mapping[str, int]) -> Look:
    """What the broker says that a group has not finished of these topics, whose partitions are counted."""

    def look() -> Left:
        try:
            offsets = _ask(job, f"/groups/{group}/offsets")["offsets"]
        except (ApiError, Unreachable) as error:
            return Left(f"how far {group} has come is not known: {error}")
        lags = {
            f"{topic}/{at}": offsets.get(topic, {}).get(str(at), {}).get("lag")
            for topic, count in topics.items()
            for at in range(count)
        }
        behind = [f"{where} by {'all' if lag is None else lag}" for where, lag in lags.items() if lag != 0]
        return Left(f"{group} is behind in {', '.join(behind)}" if behind else "", tuple(behind))

    return look


def left_of_delays(job: Job, topic: str) -> Look:
    def look() -> Left:
        try:
            count = _ask(job, f"/topics/{topic}/delayed")["count"]
        except (ApiError, Unreachable) as error:
            return Left(f"what is delayed of {topic} is not known: {error}")
        return Left(f"{count} of {topic} are still to come" if count else "", count)

    return look


def _ask(job: Job, path: str) -> Any:
    """Of the first node that answers; the last one's failure where none does."""
    failure: ApiError | Unreachable | None = None
    for address in job.http:
        connection = Connection(f"http://{address}", timeout_s=_ASK_S)
        try:
            reply = connection.request("GET", path)
            if reply.status < 300:
                return msgspec.json.decode(reply.body)
            failure = error_of(reply)
        except Unreachable as error:
            failure = error
        finally:
            connection.close()
    assert failure is not None
    raise failure
