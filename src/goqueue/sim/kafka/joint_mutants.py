"""Deliberate mistakes of joints."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from goqueue.core.txn.events import Event, JointSaved, TransactionSaved
from goqueue.core.txn.joint import Joints
from goqueue.core.txn.outcome import Decision, MarkerWork
from goqueue.core.txn.shard import TxnShard
from goqueue.node.owned_state import OwnedState


@contextmanager
def keep_last_batches_in_memory() -> Iterator[None]:
    """That a batch is committed is not written, so a restart forgets it."""
    write = OwnedState.write

    def forgetful(self: OwnedState[TxnShard, Event], events: Sequence[Event]) -> None:
        write(self, [event for event in events if not isinstance(event, JointSaved)])
        for event in events:
            if isinstance(event, JointSaved):
                self.state.apply(event)

    with patch.object(OwnedState, "write", forgetful):
        yield


@contextmanager
def enrol_whenever_asked() -> Iterator[None]:
    """Nobody looks whether the batch is committed before a task is let in."""
    enrol = Joints.enrol

    def trusting(self: Joints, *args: Any, **options: Any) -> Decision[Any]:  # handed on as they came
        with patch.object(self, "_is_committed", lambda joint_id, batch_id: False):
            return enrol(self, *args, **options)

    with patch.object(Joints, "enrol", trusting):
        yield


@contextmanager
def leave_losers_open() -> Iterator[None]:
    """A commit is about the winners and says nothing of the others."""
    judged = Joints._judged

    def partial(
        self: Joints, members: Iterable[TransactionSaved], now_ms: int, winner_ids: Collection[str] = ()
    ) -> tuple[list[Event], list[MarkerWork]]:
        if winner_ids:
            members = [saved for saved in members if saved.transactional_id in winner_ids]
        return judged(self, members, now_ms, winner_ids)

    with patch.object(Joints, "_judged", partial):
        yield


@contextmanager
def commit_everybody() -> Iterator[None]:
    """Who is open when the batch is committed counts, a winner or not."""
    judged = Joints._judged

    def generous(
        self: Joints, members: Iterable[TransactionSaved], now_ms: int, winner_ids: Collection[str] = ()
    ) -> tuple[list[Event], list[MarkerWork]]:
        everybody = list(members)
        all_ids = {saved.transactional_id for saved in everybody} if winner_ids else ()
        return judged(self, everybody, now_ms, all_ids)

    with patch.object(Joints, "_judged", generous):
        yield


@contextmanager
def take_any_winner() -> Iterator[None]:
    """A winner may have timed out, or be another by now."""
    with patch.object(Joints, "_check_winner", lambda self, winner, joint: None):
        yield


@contextmanager
def judge_one_by_one() -> Iterator[None]:
    """A verdict is as many batches in the log as it has members, so a power cut may leave some of them."""
    write = OwnedState.write

    def piecemeal(self: OwnedState[TxnShard, Event], events: Sequence[Event]) -> None:
        for event in events:
            write(self, [event])

    with patch.object(OwnedState, "write", piecemeal):
        yield
