"""The checkers see mistakes: each of the classic ones, made on purpose, is caught within a few seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.support.raft_weather import ROUGH, Storm

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.messages import AskVote
from goqueue.core.raft.raft import HardState, Raft, Restored
from goqueue.sim.quorum.quorum import MakeRaft, make_raft

Chance = Callable[[int], int]


class VotesTwice(Raft):
    def _would_vote_for(self, message: AskVote) -> bool:
        self._vote = None
        return super()._would_vote_for(message)


class VotesForShorterLogs(Raft):
    def _would_vote_for(self, message: AskVote) -> bool:
        last_index, last_term = self._log.last_index, self._log.last_term
        newer = replace(
            message,
            last_index=max(message.last_index, last_index),
            last_term=max(message.last_term, last_term),
        )
        return super()._would_vote_for(newer)


class CommitsOlderTerms(Raft):
    def _commit(self) -> None:
        if self._leadership is not None:
            self._log.commit(self._leadership.majority_index())
        super()._commit()


class CountsItselfBeforeItsDisk(Raft):
    def _commit(self) -> None:
        if self._leadership is not None:
            self._log.stable_index = self._log.last_index
        super()._commit()


class CountsWhoHasLostItsLog(Raft):
    def __init__(self, config: RaftConfig, restored: Restored, *, now_ms: int, chance: Chance) -> None:
        state = replace(restored.state, is_recovering=False)
        super().__init__(config, replace(restored, state=state), now_ms=now_ms, chance=chance)


def _forgetful(config: RaftConfig, restored: Restored, now_ms: int, chance: Chance) -> Raft:
    forgotten = HardState(restored.state.term, None, restored.state.is_recovering)
    return make_raft(config, replace(restored, state=forgotten), now_ms, chance)


def _of(kind: type[Raft]) -> MakeRaft:
    return lambda config, restored, now_ms, chance: kind(config, restored, now_ms=now_ms, chance=chance)


MUTANTS: dict[str, tuple[MakeRaft, tuple[str, ...]]] = {
    "votes twice in a term": (_of(VotesTwice), ()),
    "forgets its vote at a restart": (_forgetful, ROUGH),
    "commits an older term by counting": (_of(CommitsOlderTerms), ROUGH),
    "votes for shorter logs": (_of(VotesForShorterLogs), ()),
    "counts itself before its disk": (_of(CountsItselfBeforeItsDisk), ()),
    "counts who has lost its log": (_of(CountsWhoHasLostItsLog), ("lose", "lose")),
}


def first_caught(make: MakeRaft, extra: tuple[str, ...], seed_count: int) -> tuple[int, str] | None:
    for seed in range(seed_count):
        storm = Storm(seed, 3 + 2 * (seed % 2), extra=extra, make=make)
        try:
            storm.run()
        except AssertionError as error:
            return seed, str(error)
    return None


@pytest.mark.parametrize("name", MUTANTS)
def test_mistake_is_caught(name: str) -> None:
    make, extra = MUTANTS[name]
    assert first_caught(make, extra, 300) is not None
