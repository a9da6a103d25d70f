"""How far one peer is, as its leader knows it.

PROBE: one message at a time, until it is known where the logs part. REPLICATE: message after message, up to a bound, as if
none were lost. SNAPSHOT: it lacks what the log has forgotten; nothing but heartbeats until the snapshot is there.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import Final

INFLIGHT_COUNT_MAX: Final = 32  # messages on their way to one peer
SNAPSHOT_BEATS_MAX: Final = 4  # heartbeats after which a snapshot that was not answered is sent again


class Pace(StrEnum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Progress:
    def __init__(self, next_index: int, now_ms: int) -> None:
        self.pace = Pace.PROBE
        self.match_index = 0  # everything up to it is durable there
        self.next_index = next_index
        self.told_commit_index = 0
        self.heard_ms: int | None = None  # when its last answer came
        self.followed_ms = now_ms  # the newest moment at which it is known to have followed
        self.followed_round = 0
        self.is_recovering = False
        self.recovering_round = 0  # the first that began after it had lost its log
        self.recovered_index = 0  # what it needs in order to count again; 0: not known yet
        self._inflight: deque[tuple[int, int]] = deque()  # of each message its last index and its round
        self._is_waiting = False  # for the answer to a probe
        self._snapshot_index = 0
        self._beats_without_answer = 0

    @property
    def can_send(self) -> bool:
        match self.pace:
            case Pace.PROBE:
                return not self._is_waiting
            case Pace.REPLICATE:
                return len(self._inflight) < INFLIGHT_COUNT_MAX
            case Pace.SNAPSHOT:
                return False

    def sent(self, last_index: int, round_now: int) -> None:
        if self.pace is Pace.PROBE:
            self._is_waiting = True
            return
        self._inflight.append((last_index, round_now))
        self.next_index = last_index + 1

    def sent_snapshot(self, index: int) -> None:
        self._begin(Pace.SNAPSHOT)
        self._snapshot_index = index

    def accept(self, index: int, context: int) -> None:
        is_news = index > self.match_index
        if is_news:
            self.match_index = index
            self._beats_without_answer = 0
        while self._inflight and self._inflight[0][0] <= index:
            self._inflight.popleft()
        was_probed = self.pace is Pace.PROBE and index >= self.next_index - 1
        if was_probed or (self.pace is Pace.SNAPSHOT and index >= self._snapshot_index):
            self._begin(Pace.REPLICATE)
            self.next_index = index + 1
        self.next_index = max(self.next_index, self.match_index + 1)
        if self._inflight and self._inflight[0][1] < context and not is_news:
            # It has answered a later heartbeat and not this: it was lost, or will do no harm by coming twice.
            self._begin(Pace.PROBE)
            self.next_index = self.match_index + 1

    def refuse(self, next_index: int) -> None:
        """Try again there; what cannot be before what is sent anyway is an old answer."""
        if self.pace is not Pace.SNAPSHOT and next_index < self.next_index:
            self._begin(Pace.PROBE)
            self.next_index = max(next_index, self.match_index + 1)

    def take_back(self, next_index: int, round_now: int) -> None:
        """It has lost what it had: nothing that it said before counts."""
        self._begin(Pace.PROBE)
        self.match_index = 0
        self.told_commit_index = 0
        self.next_index = max(1, next_index)
        self.recovering_round = round_now + 1
        self.recovered_index = 0

    def beat(self) -> None:
        """A heartbeat interval is over: what has brought no answer is taken for lost."""
        self._is_waiting = False
        if self.match_index + 1 == self.next_index and self.pace is Pace.REPLICATE:
            self._beats_without_answer = 0
            return
        self._beats_without_answer += 1
        patience = SNAPSHOT_BEATS_MAX if self.pace is Pace.SNAPSHOT else 1
        if self.pace is not Pace.PROBE and self._beats_without_answer > patience:
            self._begin(Pace.PROBE)
            self.next_index = self.match_index + 1

    def _begin(self, pace: Pace) -> None:
        self.pace = pace
        self._inflight.clear()
        self._is_waiting = False
        self._beats_without_answer = 0
