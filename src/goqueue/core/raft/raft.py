"""One member of a quorum that agrees on a log (Ongaro and Ousterhout's Raft), without a clock, a disk or a network.

`step` takes messages, `tick` the time; `ready` says what to persist, to send and to apply, and `advance` that it was
persisted. A message goes out only with or after everything that it depends on, because both are in the same `Ready` or the
message is in a later one. So the vote and the term are durable before a vote is, and entries before they are said to be.

Beyond the paper's core: pre-votes (who cannot win does not disturb), leaders that give up when a majority is silent, voters
that do not vote while they hear a leader, hand-over, one voter added or removed at a time, observers, and voters that have
lost their log. The last rests on two things. A leader takes back what such a voter had said, and lets it count again only
with everything that was committed (`leadership.py`). And the voter waits for a whole election timeout after its start, so
that no candidate can still use a vote that it has forgotten; messages of its earlier life must not arrive after that.
One that has nothing at all may be new, or only its disk: it votes for nobody who has something, and when a leader shows it
that there was something before, it takes itself for one that has lost its log.

A node that nobody counts (an observer, or a voter that does not know yet that it is one) answers when it is asked for its
vote: only whoever has it among its voters asks, and that may be the only way to the entry that made it one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import assert_never

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.election import Tally, is_up_to_date
from goqueue.core.raft.following import Taken, take_entries, take_snapshot
from goqueue.core.raft.leadership import Leadership
from goqueue.core.raft.log import RaftLog
from goqueue.core.raft.messages import (
    AnswerVote,
    Append,
    Appended,
    AskVote,
    Entry,
    EntryKind,
    Message,
    SendSnapshot,
    Snapshot,
    TimeoutNow,
    encode_voters,
    is_hypothetical,
    is_sound,
)
from goqueue.core.raft.refusals import InvalidVoters, NotLeading, Overloaded
from goqueue.core.raft.states import HardState, Ready, Restored, Role, Standing
from goqueue.core.raft.voters import VoterHistory, check_change
from goqueue.model.errors import invariant

__all__ = ["HardState", "InvalidVoters", "NotLeading", "Overloaded", "Raft", "Ready", "Restored", "Role"]


class Raft:
    def __init__(
        self, config: RaftConfig, restored: Restored, *, now_ms: int, chance: Callable[[int], int]
    ) -> None:
        self._config = config
        self._chance = chance
        self._now_ms = now_ms
        self._log = RaftLog(restored.snapshot, restored.entries)
        self._voters = VoterHistory(
            restored.voters,
            restored.snapshot,
            self._log.between(self._log.start_index + 1, self._log.last_index + 1),
        )
        self._saved_state = restored.state
        self._term, self._vote = self._restored_term(restored.state)
        self._is_recovering = restored.state.is_recovering
        self._recovers_ms = now_ms + config.election_ms_max
        self._role = Role.FOLLOWER
        self._leader: str | None = None
        self._leader_heard_ms = now_ms
        self._tally: Tally | None = None
        self._leadership: Leadership | None = None
        self._observers: tuple[str, ...] = ()
        self._messages: list[Message] = []
        self._out: Ready | None = None
        self._election_ms = 0
        self._wait_for_election()
        if self._is_quorum_of_one and not self._is_recovering:
            self._log.commit(self._log.last_index)

    # Facts

    @property
    def name(self) -> str:
        return self._config.name

    @property
    def term(self) -> int:
        return self._term

    @property
    def role(self) -> Role:
        return self._role

    @property
    def leader(self) -> str | None:
        return self._leader

    @property
    def voters(self) -> tuple[str, ...]:
        return self._voters.newest

    @property
    def are_voters_written(self) -> bool:
        """The log, or the snapshot before it, says who they are; else they are as configured."""
        return self._voters.newest_index > 0

    @property
    def commit_index(self) -> int:
        return self._log.commit_index

    @property
    def last_index(self) -> int:
        return self._log.last_index

    @property
    def is_leader(self) -> bool:
        return self._leadership is not None

    @property
    def is_active(self) -> bool:
        """Leads, and has committed an entry of its own term."""
        return self._leadership is not None and self._leadership.is_active

    @property
    def first_index(self) -> int | None:
        """Of the entries that it has made since it leads; None if it does not."""
        return None if self._leadership is None else self._leadership.first_index

    @property
    def is_recovering(self) -> bool:
        return self._is_recovering

    def standings(self, now_ms: int) -> dict[str, Standing]:
        """For a leader: its peers, observers too."""
        return self._leadership.standings(now_ms) if self._leadership else {}

    def followed_ms(self, now_ms: int) -> int | None:
        """For a leader: the newest moment at which a majority is known to have followed it. Whoever asked before that
        moment may be answered from what is applied here: nothing newer was committed elsewhere by then."""
        return self._leadership.followed_ms(now_ms) if self._leadership else None

    @property
    def followed_round(self) -> int:
        """For a leader: the newest round (`inquire`) that a majority has answered; whoever else answers 0."""
        return self._leadership.followed_round if self._leadership else 0

    def next_tick_ms(self) -> int:
        leadership = self._leadership
        if leadership is None:
            return self._election_ms
        ends_ms = leadership.followed_ms(self._now_ms) + self._config.lease_ms
        if leadership.transferee is not None:
            ends_ms = min(ends_ms, leadership.transfer_ends_ms)
        return min(ends_ms, leadership.beat_ms)

    # Input

    def step(self, message: Message, now_ms: int) -> None:
        """Ignores what is not for it, is stale or cannot be."""
        self._now_ms = now_ms
        if message.target != self.name or message.source == self.name or not is_sound(message):
            return
        if isinstance(message, AskVote) and not message.is_transfer and self._hears_a_leader:
            return
        if message.term < self._term:
            self._correct(message)
            return
        if message.term > self._term and not is_hypothetical(message):
            self._follow(message.term, None)
        match message:
            case AskVote():
                self._answer(message)
            case AnswerVote():
                self._count(message)
            case Append() | SendSnapshot():
                self._hear_leader(message)
            case Appended():
                self._hear_peer(message)
            case TimeoutNow():
                if message.source == self._leader and self._can_stand and not self.is_leader:
                    self._stand(is_transfer=True)
            case _:
                assert_never(message)

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        leadership = self._leadership
        if leadership is None:
            if now_ms >= self._election_ms:
                self._follow(self._term, None)
                self.campaign(now_ms)
            return
        if leadership.transferee is not None and now_ms >= leadership.transfer_ends_ms:
            leadership.transferee = None
        if now_ms - leadership.followed_ms(now_ms) >= self._config.lease_ms:
            self._follow(self._term, None)
        elif now_ms >= leadership.beat_ms:
            self._messages += leadership.beat(now_ms)

    def propose(self, payload: bytes, now_ms: int) -> int:
        """The index that it gets if it is committed in this term."""
        self._now_ms = now_ms
        self._check_may_propose()
        return self._append_own(EntryKind.COMMAND, payload)

    def change_voters(self, voters: Sequence[str], now_ms: int) -> int:
        """They count from now on, for their own commit, too. Those that are configured may be written down as they are: from then on it
        does not matter what is configured."""
        self._now_ms = now_ms
        self._check_may_propose()
        if not self.is_active:
            raise InvalidVoters("this leader has not committed anything yet; try again in a moment")
        if self._voters.newest_index > self.commit_index:
            raise InvalidVoters(
                f"the change to {list(self.voters)} is not committed yet; try again in a moment"
            )
        if self.are_voters_written or tuple(voters) != self.voters:
            check_change(self.voters, voters)
        return self._append_own(EntryKind.VOTERS, encode_voters(voters))

    def inquire(self, now_ms: int) -> int:
        """The number of a round that begins now. When `followed_round` has come to it, and this is still the leader of the same term,
        everything that was committed by anybody before is at or below the commit index that it had then."""
        self._now_ms = now_ms
        if self._leadership is None:
            raise NotLeading(self._leader)
        self._messages += self._leadership.inquire(now_ms)
        return self._leadership.round

    def campaign(self, now_ms: int) -> None:
        """Do not wait for the election timeout. Who may not stand does nothing."""
        self._now_ms = now_ms
        if not self._can_stand or self.is_leader:
            return
        if self._is_quorum_of_one:
            self._stand(is_transfer=False)
        else:
            self._role, self._leader = Role.PRE_CANDIDATE, None
            self._ask_for_votes(self._term + 1, is_transfer=False)

    def transfer(self, target: str, now_ms: int) -> None:
        """Hand over, once the target has everything. Given up after an election timeout."""
        self._now_ms = now_ms
        leadership = self._leadership
        if leadership is None:
            raise NotLeading(self._leader)
        if target == self.name:
            return
        if not leadership.may_lead(target):
            raise InvalidVoters(
                f"{target} cannot lead: it is none of {list(self.voters)}, or has lost its log"
            )
        self._messages += leadership.begin_transfer(target, now_ms)

    def set_observers(self, names: Collection[str]) -> None:
        """Who else gets entries, while this node leads."""
        self._observers = tuple(sorted(names))
        if self._leadership is not None:
            self._leadership.set_peers(self.voters, self._observers, self._now_ms)

    # Output

    def ready(self) -> Ready | None:
        """None if there is nothing to do, or if the last one is still out."""
        if self._out is not None:
            return None
        if self._leadership is not None:
            self._messages += self._leadership.send()
        state = HardState(self._term, self._vote, self._is_recovering)
        ready = Ready(
            state=state if state != self._saved_state else None,
            snapshot=self._log.unsaved_snapshot,
            entries=self._log.unstable(),
            messages=tuple(self._messages),
            committed=self._log.give(),
            restored=self._log.ungiven_snapshot,
        )
        self._log.ungiven_snapshot = None
        self._messages = []
        if not (
            ready.state
            or ready.snapshot
            or ready.entries
            or ready.messages
            or ready.committed
            or ready.restored
        ):
            return None
        self._out = ready
        return ready

    def advance(self, ready: Ready) -> None:
        """What it said to persist is durable."""
        invariant(ready is self._out, "only what is out can be done")
        self._out = None
        self._saved_state = ready.state or self._saved_state
        self._log.saved(ready.snapshot, ready.entries)
        self._commit()

    def compact(self, index: int, payload: bytes) -> Snapshot:
        """`payload` is what the applied entries up to `index` have come to: forget them."""
        term = self._log.term_at(index)
        invariant(index >= 1 and term is not None, f"there is nothing at {index} to forget")
        snapshot = Snapshot(index, term or 0, self._voters.at(index), payload)
        self._log.compact(snapshot)
        self._voters.forget(index)
        return snapshot

    # Terms and elections

    def _restored_term(self, state: HardState) -> tuple[int, str | None]:
        """Entries are durable before the term is. If only they are, the vote of that term counts as given."""
        if self._log.last_term > state.term:
            return self._log.last_term, self.name
        return state.term, state.vote

    @property
    def _is_quorum_of_one(self) -> bool:
        return self.voters == (self.name,)

    @property
    def _is_blank(self) -> bool:
        """It has nothing. Also who does not vote as far as it knows: it may have become a voter before it lost its disk."""
        return self._log.last_index == 0 and not self._is_quorum_of_one

    @property
    def _can_stand(self) -> bool:
        """Also who is being removed, until that is committed: it may be the only one with the entry that says so."""
        is_voter = self.name in self.voters
        is_leaving = self._voters.newest_index > self.commit_index and self.name in self._voters.previous
        return (is_voter or is_leaving) and not self._is_recovering

    @property
    def _hears_a_leader(self) -> bool:
        if self.is_leader:
            return True
        silent_ms = self._now_ms - self._leader_heard_ms
        return self._leader is not None and silent_ms < self._config.election_ms_min

    def _wait_for_election(self) -> None:
        spread = self._config.election_ms_max - self._config.election_ms_min
        self._election_ms = self._now_ms + self._config.election_ms_min + self._chance(spread + 1)

    def _follow(self, term: int, leader: str | None) -> None:
        if term > self._term:
            self._term, self._vote = term, None
        self._role, self._leader = Role.FOLLOWER, leader
        self._tally = None
        self._leadership = None
        self._wait_for_election()

    def _stand(self, *, is_transfer: bool) -> None:
        self._term += 1
        self._vote = self.name
        self._role, self._leader = Role.CANDIDATE, None
        self._ask_for_votes(self._term, is_transfer=is_transfer)

    def _ask_for_votes(self, term: int, *, is_transfer: bool) -> None:
        self._wait_for_election()
        self._tally = Tally(self.voters, self.name)
        if self._tally.is_won:
            self._lead()
            return
        self._messages += [
            AskVote(
                source=self.name,
                target=voter,
                term=term,
                last_index=self._log.last_index,
                last_term=self._log.last_term,
                is_pre=self._role is Role.PRE_CANDIDATE,
                is_transfer=is_transfer,
            )
            for voter in self.voters
            if voter != self.name
        ]

    def _answer(self, message: AskVote) -> None:
        is_granted = self._would_vote_for(message)
        if is_granted and not message.is_pre:
            self._vote = message.source
            self._wait_for_election()
        term = message.term if is_granted else self._term
        self._messages.append(AnswerVote(self.name, message.source, term, is_granted, message.is_pre))

    def _would_vote_for(self, message: AskVote) -> bool:
        if self._is_recovering or not is_up_to_date(self._log, message):
            return False
        if self._is_blank and message.last_index > 0:
            return False
        if message.is_pre:
            return message.term > self._term
        return self._vote == message.source or (self._vote is None and self._leader is None)

    def _count(self, message: AnswerVote) -> None:
        asked = Role.PRE_CANDIDATE if message.is_pre else Role.CANDIDATE
        term = self._term + 1 if message.is_pre and message.is_granted else self._term
        is_late = self._now_ms >= self._election_ms  # its voter may have forgotten it since
        if self._tally is None or self._role is not asked or message.term != term or is_late:
            return
        self._tally.count(message.source, message.is_granted)
        if self._tally.is_lost:
            self._follow(self._term, None)
        elif self._tally.is_won and message.is_pre:
            self._stand(is_transfer=False)
        elif self._tally.is_won:
            self._lead()

    def _correct(self, message: Message) -> None:
        """Tell who is behind about the newer term."""
        if isinstance(message, AskVote):
            self._messages.append(AnswerVote(self.name, message.source, self._term, False, message.is_pre))
        elif isinstance(message, Append | SendSnapshot):
            self._answer_leader(message, Taken(False, 0))

    # Leading

    def _lead(self) -> None:
        self._role, self._leader = Role.LEADER, self.name
        self._tally = None
        self._leadership = Leadership(self._config, self._log, self._term, self._now_ms)
        self._leadership.set_peers(self.voters, self._observers, self._now_ms)
        self._append_own(EntryKind.NOOP, b"")

    def _check_may_propose(self) -> None:
        if self._leadership is None:
            raise NotLeading(self._leader)
        if self._leadership.transferee is not None:
            raise NotLeading(self._leadership.transferee)
        uncommitted_count = self.last_index - self.commit_index
        if uncommitted_count >= self._config.uncommitted_count_max:
            raise Overloaded(uncommitted_count)

    def _append_own(self, kind: EntryKind, payload: bytes) -> int:
        entry = Entry(self.last_index + 1, self._term, kind, payload)
        self._log.append([entry])
        self._voters.add([entry])
        if self._leadership is not None and kind is EntryKind.VOTERS:
            self._leadership.set_peers(self.voters, self._observers, self._now_ms)
        return entry.index

    def _hear_peer(self, message: Appended) -> None:
        if self._leadership is not None:
            self._messages += self._leadership.hear(message, self._now_ms)
            self._commit()

    def _commit(self) -> None:
        """What a majority has, if it is of this term: an older entry may be on a majority and still be replaced."""
        leadership = self._leadership
        if leadership is None:
            return
        index = leadership.majority_index()
        if index > self.commit_index and self._log.term_at(index) == self._term:
            self._log.commit(index)
        leadership.readmit()
        if self.name not in self.voters and self._voters.newest_index <= self.commit_index:
            self._messages += leadership.send()
            self._follow(self._term, None)

    # Following

    def _hear_leader(self, message: Append | SendSnapshot) -> None:
        if self.is_leader or self._leader not in (None, message.source):
            return  # two leaders in one term: one of them is none
        self._follow(message.term, message.source)
        self._leader_heard_ms = self._now_ms
        self._is_recovering |= self._is_blank and (
            isinstance(message, SendSnapshot) or message.prev_index > 0
        )
        if isinstance(message, SendSnapshot):
            taken: Taken | None = Taken(True, take_snapshot(self._log, self._voters, message.snapshot))
        else:
            taken = take_entries(self._log, self._voters, message)
        if taken is None:
            return
        if isinstance(message, Append) and taken.is_accepted:
            has_all = 0 < message.recovered_index <= taken.index
            self._is_recovering &= not (has_all and self._now_ms >= self._recovers_ms)
        self._answer_leader(message, taken)

    def _answer_leader(self, message: Append | SendSnapshot, taken: Taken) -> None:
        self._messages.append(
            Appended(
                source=self.name,
                target=message.source,
                term=self._term,
                is_accepted=taken.is_accepted,
                index=taken.index,
                hint_term=self._log.term_at(taken.index) or 0,
                context=message.context if isinstance(message, Append) else 0,
                is_recovering=self._is_recovering,
            )
        )
