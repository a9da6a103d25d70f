"""What only a leader knows and does: how far its peers are, what they get next, what a majority has, whether a majority
still follows, and to whom it hands over.

A round begins with every heartbeat. An answer that carries a round's number proves that the peer followed this leader
after the round had begun: that is what the lease rests on, and what makes it safe to tell a voter that has lost its log
that it has everything again: no newer leader can have committed anything before the loss that this one does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from goqueue.core.raft.config import RaftConfig
from goqueue.core.raft.log import RaftLog
from goqueue.core.raft.messages import Append, Appended, Entry, Message, SendSnapshot, TimeoutNow
from goqueue.core.raft.progress import Pace, Progress
from goqueue.core.raft.states import Standing
from goqueue.core.raft.voters import reached


class Leadership:
    def __init__(self, config: RaftConfig, log: RaftLog, term: int, now_ms: int) -> None:
        self.first_index = log.last_index + 1  # of its own entries
        self.transferee: str | None = None
        self.transfer_ends_ms = 0
        self.beat_ms = now_ms + config.heartbeat_ms
        self._config = config
        self._log = log
        self._term = term
        self._peers: dict[str, Progress] = {}
        self._voters: tuple[str, ...] = ()
        self.round = 1
        self._rounds_ms: dict[int, int] = {1: now_ms}  # when each began, as far back as it matters

    @property
    def is_active(self) -> bool:
        """An entry of its own is committed: only now it knows what all leaders before it have committed."""
        return self._log.commit_index >= self.first_index

    def set_peers(self, voters: tuple[str, ...], observers: Iterable[str], now_ms: int) -> None:
        self._voters = voters
        names = sorted({*voters, *observers} - {self._config.name})
        self._peers = {
            name: self._peers.get(name) or Progress(self._log.last_index + 1, now_ms) for name in names
        }

    def beat(self, now_ms: int) -> list[Message]:
        """Begin a round. Who is probed gets a probe instead, from `send`."""
        self.beat_ms = now_ms + self._config.heartbeat_ms
        self._begin_round(now_ms)
        for progress in self._peers.values():
            progress.beat()
        return [
            self._notice(name, progress)
            for name, progress in self._peers.items()
            if progress.pace is not Pace.PROBE
        ]

    def inquire(self, now_ms: int) -> list[Message]:
        """Begin a round between heartbeats, for who cannot wait for the next to know whether a majority still follows."""
        self._begin_round(now_ms)
        return [self._notice(name, self._peers[name]) for name in self._voters if name != self._config.name]

    def _begin_round(self, now_ms: int) -> None:
        self.round += 1
        self._rounds_ms[self.round] = now_ms
        for number in list(self._rounds_ms):  # in order
            if now_ms - self._rounds_ms[number] <= self._config.lease_ms:
                break
            del self._rounds_ms[number]

    def send(self) -> list[Message]:
        """Whatever the peers lack and may get now."""
        messages: list[Message] = []
        for name, progress in self._peers.items():
            count = len(messages)
            while progress.can_send and (message := self._next(name, progress)):
                messages.append(message)
            known = min(self._log.commit_index, progress.match_index)
            is_due = progress.pace is Pace.REPLICATE and progress.told_commit_index < known
            if len(messages) == count and is_due:
                messages.append(self._notice(name, progress))
        return messages

    def hear(self, message: Appended, now_ms: int) -> list[Message]:
        progress = self._peers.get(message.source)
        if progress is None or message.index > self._log.last_index:
            return []
        progress.heard_ms = now_ms
        if message.context in self._rounds_ms:
            progress.followed_ms = max(progress.followed_ms, self._rounds_ms[message.context])
            progress.followed_round = max(progress.followed_round, message.context)
        may_regress = message.is_recovering or message.source not in self._voters
        is_behind = not message.is_accepted and message.index < progress.match_index
        if (message.is_recovering and not progress.is_recovering) or (may_regress and is_behind):
            progress.take_back(message.index + 1, self.round)
        progress.is_recovering = message.is_recovering
        if message.is_accepted:
            progress.accept(message.index, message.context)
        else:
            progress.refuse(self._log.floor(message.index, message.hint_term) + 1)
        return self.hand_over() if message.source == self.transferee else []

    def majority_index(self) -> int:
        """What is durable at a majority of the voters."""
        return self._reached(lambda peer: peer.match_index, self._log.stable_index)

    def followed_ms(self, now_ms: int) -> int:
        """The newest moment at which a majority is known to have followed."""
        return self._reached(lambda peer: peer.followed_ms, now_ms)

    @property
    def followed_round(self) -> int:
        """The newest round that a majority is known to have followed after it had begun."""
        return self._reached(lambda peer: peer.followed_round, self.round)

    def readmit(self) -> None:
        """Tell recovering voters what they need, once that is certain."""
        followed_round = self.followed_round
        for peer in self._peers.values():
            is_certain = self.is_active and followed_round >= peer.recovering_round
            if peer.is_recovering and is_certain and not peer.recovered_index:
                peer.recovered_index = self._log.commit_index

    def may_lead(self, name: str) -> bool:
        peer = self._peers.get(name)
        return name in self._voters and peer is not None and not peer.is_recovering

    def begin_transfer(self, target: str, now_ms: int) -> list[Message]:
        self.transferee = target
        self.transfer_ends_ms = now_ms + self._config.election_ms_max
        return self.hand_over()

    def hand_over(self) -> list[Message]:
        """As soon as the next leader has everything."""
        peer = self._peers.get(self.transferee or "")
        if self.transferee is None or peer is None or peer.match_index < self._log.last_index:
            return []
        return [TimeoutNow(self._config.name, self.transferee, self._term)]

    def standings(self, now_ms: int) -> dict[str, Standing]:
        last_index = self._log.last_index
        return {
            name: Standing(
                None if peer.heard_ms is None else now_ms - peer.heard_ms,
                last_index - peer.match_index,
                peer.is_recovering,
            )
            for name, peer in self._peers.items()
        }

    def _reached(self, value: Callable[[Progress], int], own: int) -> int:
        return reached([self._value(name, value, own) for name in self._voters], self._voters)

    def _value(self, name: str, value: Callable[[Progress], int], own: int) -> int:
        if name == self._config.name:
            return own
        peer = self._peers[name]
        return -1 if peer.is_recovering else value(peer)

    def _next(self, name: str, progress: Progress) -> Message | None:
        prev_index = progress.next_index - 1
        prev_term = self._log.term_at(prev_index)
        if prev_term is None:
            snapshot = self._log.snapshot
            if snapshot is None or prev_index > snapshot.index:
                return None
            progress.sent_snapshot(snapshot.index)
            return SendSnapshot(self._config.name, name, self._term, snapshot)
        entries = self._log.chunk(
            progress.next_index,
            count_max=self._config.entries_per_append_max,
            bytes_max=self._config.bytes_per_append_max,
        )
        if not entries and progress.pace is Pace.REPLICATE:
            return None
        last_index = prev_index + len(entries)
        progress.sent(last_index, self.round)
        progress.told_commit_index = max(progress.told_commit_index, min(self._log.commit_index, last_index))
        return self._append(name, progress, prev_index, prev_term, entries)

    def _notice(self, name: str, progress: Progress) -> Append:
        """No entries: a heartbeat, and news of what is committed. It refers to what the peer is known to have, so that a
        refusal means a loss; 0 is what everybody has."""
        prev_index, prev_term = progress.match_index, self._log.term_at(progress.match_index)
        progress.told_commit_index = min(self._log.commit_index, progress.match_index)
        if prev_term is None:
            prev_index, prev_term = 0, 0
        return self._append(name, progress, prev_index, prev_term, ())

    def _append(
        self, name: str, progress: Progress, prev_index: int, prev_term: int, entries: Sequence[Entry]
    ) -> Append:
        return Append(
            source=self._config.name,
            target=name,
            term=self._term,
            prev_index=prev_index,
            prev_term=prev_term,
            entries=tuple(entries),
            commit_index=self._log.commit_index,
            context=self.round,
            recovered_index=progress.recovered_index if progress.is_recovering else 0,
        )
