"""Records that leave a partition for another topic: to the dead letters, or back from there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from goqueue.core.lease.events import REDRIVE, Change, Letter, Moving, Target
from goqueue.core.lease.ledger import Ledger
from goqueue.core.lease.window import Entry, Window
from goqueue.core.producer import next_sequence
from goqueue.model.errors import LimitExceeded

LETTERS_PER_MOVE: Final = 100
OPEN_MOVE_COUNT_MAX: Final = 10_000  # of one partition; then nothing more leaves it until some are done
REASON_LENGTH_MAX: Final = 1_000


class Moves:
    """The moves of one decision, each with a serial and sequences of its own."""

    def __init__(self, ledger: Ledger, now_ms: int, cause: str) -> None:
        self._open_count = len(ledger.moves)
        self._serial = ledger.serial
        self._sequences = dict(ledger.sequences)
        self._now_ms = now_ms
        self._cause = cause

    def of_dead(self, window: Window, dead: dict[int, Entry], target: Target, reason: str) -> list[Change]:
        """`reason` is why the last attempt failed; who gave none now may have given one before."""
        moves, left = self.of_some_dead(window, dead, target, reason)
        if left:
            raise _too_many(target)
        return moves

    def of_some_dead(
        self, window: Window, dead: dict[int, Entry], target: Target, reason: str
    ) -> tuple[list[Change], list[int]]:
        """As many as may be under way, and the offsets of the others."""
        by_reason: dict[str, list[Letter]] = {}
        for offset, entry in sorted(dead.items()):
            letter = Letter(offset, entry.deliveries, entry.first_ms, entry.last_ms, entry.member)
            by_reason.setdefault((reason or entry.reason)[:REASON_LENGTH_MAX], []).append(letter)
        moves: list[Change] = []
        left: list[int] = []
        for text, letters in by_reason.items():
            parts = self._parts(letters, target, window.number, window.group_id, text)
            moves += parts
            left += [letter.offset for letter in letters[sum(len(part.letters) for part in parts) :]]
        return moves, sorted(left)

    def of_redrive(self, offsets: Sequence[int], target: Target) -> list[Change]:
        letters = [Letter(offset, 0, 0, 0, "") for offset in offsets]
        parts = self._parts(letters, target, REDRIVE, "", "")
        if sum(len(part.letters) for part in parts) < len(letters):
            raise _too_many(target)
        return [*parts]

    def _parts(
        self, letters: list[Letter], target: Target, group: int, group_id: str, reason: str
    ) -> list[Moving]:
        """Those at the end are left out if there is no room for them."""
        moves: list[Moving] = []
        for at in range(0, len(letters), LETTERS_PER_MOVE):
            if self._open_count >= OPEN_MOVE_COUNT_MAX:
                break
            self._open_count += 1
            self._serial += 1
            part = letters[at : at + LETTERS_PER_MOVE]
            sequence = self._sequences.get(target, 0)
            self._sequences[target] = next_sequence(sequence, len(part))
            moves.append(
                Moving(
                    group, self._serial, part, target, sequence, self._now_ms, reason, self._cause, group_id
                )
            )
        return moves


def _too_many(target: Target) -> LimitExceeded:
    return LimitExceeded(
        f"{OPEN_MOVE_COUNT_MAX} moves wait already, the newest for topic {target.topic!r}; see why it takes "
        "nothing, and try again",
        topic=target.topic,
        count_max=OPEN_MOVE_COUNT_MAX,
    )
