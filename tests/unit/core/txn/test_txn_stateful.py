"""Producers, zombies, lost answers, slow markers and crashes in any order: a transaction ends once, for all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.txns import Coordinator

from goqueue.core.txn import transitions
from goqueue.core.txn.config import TxnConfig
from goqueue.core.txn.events import (
    RESTING,
    ProducerEpoch,
    TopicPartition,
    TransactionSaved,
    TxnState,
)
from goqueue.core.txn.outcome import MarkerWork
from goqueue.model.errors import GoQueueError

CONFIG = TxnConfig(id_expiration_ms=500, timeout_ms_max=200)
PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0)]
GROUPS = ["workers", "auditors"]
IDS = ["a", "b"]
_PICK = st.integers(0, 10_000)

Transaction = tuple[str, int, int]  # transactional id, producer id and serial
Participant = TopicPartition | str


@dataclass(eq=False)
class Client:
    id: str
    bumps_epoch: bool
    who: ProducerEpoch
    is_zombie: bool = False  # a newer one has taken over
    transaction: Transaction | None = None  # that it has open
    lost: tuple[bool, ProducerEpoch] | None = None  # the verdict and answer of an end that it did not hear of


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(transitions, "EPOCH_MAX", 4)  # so that epochs run out
        self.coordinator = Coordinator(CONFIG)
        self.clients: list[Client] = []
        self.joined: dict[Transaction, set[Participant]] = {}
        self.open: dict[tuple[Participant, int], Transaction] = {}  # what a participant holds of a producer
        self.asked: set[Transaction] = set()  # to be committed
        self.verdicts: dict[Transaction, bool] = {}
        self.marker_epochs: dict[int, int] = {}  # the newest that was issued for a producer id
        self.reported: list[MarkerWork] = []

    @initialize()
    def begin(self) -> None:
        for id in IDS:
            self.take_over(id, bumps_epoch=True)

    @rule(id=st.sampled_from(IDS), bumps_epoch=st.booleans())
    def take_over(self, id: str, bumps_epoch: bool) -> None:
        saved = self._saved(id)
        if saved is not None and saved.state is TxnState.ONGOING:
            self._retire(id)  # the answer is "try again", but from here on nobody may do anything
        try:
            who = self.coordinator.init(id, timeout_ms=100)
        except GoQueueError:
            assert saved is not None
            assert saved.state not in RESTING
            return
        self._retire(id)
        self.clients.append(Client(id, bumps_epoch, who))

    @rule(pick=_PICK)
    def ask_for_next_epoch(self, pick: int) -> None:
        client = self._client(pick)
        saved = self._saved(client.id)
        try:
            client.who = self.coordinator.init(client.id, timeout_ms=100, given=client.who)
        except GoQueueError:
            return
        if saved is None:  # forgotten: everybody is new to the coordinator
            self._retire(client.id)
            client.is_zombie = False
        assert not client.is_zombie
        client.lost = client.transaction = None

    @rule(pick=_PICK, parts=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def add_partitions(self, pick: int, parts: set[TopicPartition]) -> None:
        client = self._client(pick)
        self._add(client, set(parts), lambda: self.coordinator.add(client.who, *sorted(parts), id=client.id))

    @rule(pick=_PICK, group=st.sampled_from(GROUPS))
    def add_group(self, pick: int, group: str) -> None:
        client = self._client(pick)
        self._add(client, {group}, lambda: self.coordinator.add_group(client.who, group, id=client.id))

    def _add(self, client: Client, participants: set[Participant], add: Callable[[], None]) -> None:
        saved = self._saved(client.id)
        may_add = (
            saved is not None and saved.producer == client.who and saved.state in (*RESTING, TxnState.ONGOING)
        )
        try:
            add()
        except GoQueueError:
            assert not may_add
            return
        assert not client.is_zombie
        assert may_add
        client.transaction = _transaction(self.coordinator.saved(client.id))
        self.joined.setdefault(client.transaction, set()).update(participants)

    @rule(pick=_PICK, part=st.sampled_from(PARTITIONS))
    def write(self, pick: int, part: TopicPartition) -> None:
        client = self._client(pick)
        try:
            refusals = self.coordinator.shard.verify(client.id, *client.who, [part])
        except GoQueueError:
            return
        assert not client.is_zombie
        transaction = _transaction(self.coordinator.saved(client.id))
        is_member = part in self.joined.get(transaction, ()) and transaction not in self.verdicts
        assert (not refusals) == is_member
        if is_member:
            self.open[part, client.who.producer_id] = transaction

    @rule(pick=_PICK, is_commit=st.booleans(), is_lost=st.booleans())
    def end(self, pick: int, is_commit: bool, is_lost: bool) -> None:
        client = self._client(pick)
        if client.lost is not None:
            is_commit = client.lost[0]
        saved = self._saved(client.id)
        if (
            is_commit
            and saved is not None
            and saved.producer == client.who
            and saved.state is TxnState.ONGOING
        ):
            self.asked.add(_transaction(saved))
        try:
            after = self.coordinator.end(
                client.who, is_commit=is_commit, bumps_epoch=client.bumps_epoch, id=client.id
            )
        except GoQueueError:
            return
        self._note_issued()
        assert not client.is_zombie
        if client.lost is not None:
            assert after == client.lost[1]
        if client.transaction is not None:
            assert self.verdicts[client.transaction] == is_commit
        if is_lost:
            client.lost = is_commit, after
        else:
            client.who, client.lost, client.transaction = after, None, None

    @rule(pick=_PICK)
    def write_one_marker(self, pick: int) -> None:
        if self.coordinator.pending:
            work = self.coordinator.pending[pick % len(self.coordinator.pending)]
            participants = _participants(work)
            self._tell(work, participants[pick % len(participants)])

    def _tell(self, work: MarkerWork, participant: Participant) -> None:
        """It may hear it twice; what it holds is then not of another transaction."""
        transaction = _told(work)
        assert self.open.pop((participant, work.producer.producer_id), transaction) == transaction

    @rule(pick=_PICK)
    def report_markers(self, pick: int) -> None:
        if self.coordinator.pending:
            work = self.coordinator.pending.pop(pick % len(self.coordinator.pending))
            for participant in _participants(work):
                self._tell(work, participant)
            self.coordinator.written(work)
            self.reported.append(work)
            assert self.coordinator.state(work.transactional_id) in RESTING

    @rule(pick=_PICK)
    def report_markers_again(self, pick: int) -> None:
        if self.reported:
            work = self.reported[pick % len(self.reported)]
            before = self._saved(work.transactional_id)
            self.coordinator.written(work)
            assert self._saved(work.transactional_id) == before

    @rule(after_ms=st.integers(0, 150))
    def let_time_pass(self, after_ms: int) -> None:
        self.coordinator.tick(after_ms)

    @rule()
    def crash(self) -> None:
        self.coordinator.crash()

    @invariant()
    def replayed_state_is_live_state(self) -> None:
        self.coordinator.check_replay()

    @invariant()
    def each_transaction_has_one_verdict_for_all_its_participants(self) -> None:
        self._note_issued()

    @invariant()
    def what_is_open_belongs_to_a_transaction_that_will_end(self) -> None:
        for (participant, _), transaction in self.open.items():
            saved = self.coordinator.saved(transaction[0])
            assert _transaction(saved) == transaction
            assert saved.state not in RESTING
            assert isinstance(participant, str) or saved.holds(*participant)

    def _note_issued(self) -> None:
        for work in self.coordinator.pending:
            transaction = _told(work)
            id, epoch = work.producer
            assert self.verdicts.setdefault(transaction, work.is_commit) == work.is_commit
            assert set(_participants(work)) == self.joined[transaction]
            assert not work.is_commit or transaction in self.asked
            assert self.marker_epochs.get(id, 0) <= epoch
            self.marker_epochs[id] = epoch

    def teardown(self) -> None:
        """In the end everything is complete, and whoever comes can work."""
        try:
            while self.coordinator.pending:
                self.report_markers(0)
            for id in IDS:
                saved = self._saved(id)
                if saved is not None and saved.state is TxnState.ONGOING:
                    self.take_over(id, bumps_epoch=True)
                    self.report_markers(0)
                who = self.coordinator.init(id, timeout_ms=100)
                self.coordinator.add(who, PARTITIONS[0], id=id)
                self.coordinator.end(who, id=id)
                assert self.coordinator.complete(id=id).is_commit
            assert self.open == {}
        finally:
            self.patch.undo()

    def _client(self, pick: int) -> Client:
        return self.clients[pick % len(self.clients)]

    def _retire(self, id: str) -> None:
        for client in self.clients:
            client.is_zombie = client.is_zombie or client.id == id

    def _saved(self, id: str) -> TransactionSaved | None:
        return next(
            (saved for saved in self.coordinator.shard.transactions() if saved.transactional_id == id), None
        )


def _transaction(saved: TransactionSaved) -> Transaction:
    return saved.transactional_id, saved.producer_id, saved.serial


def _told(work: MarkerWork) -> Transaction:
    return work.transactional_id, work.producer.producer_id, work.serial


def _participants(work: MarkerWork) -> list[Participant]:
    participants: list[Participant] = [*work.partitions]
    participants += work.groups
    return participants


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
