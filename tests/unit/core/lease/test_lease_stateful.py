"""Groups, members, lost snapshots, restarts and clocks in any order, against a dictionary of what became of each record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.leases import Bench, check_counts, copy_of, facts, through_the_log

from goqueue.core.lease.decisions import (
    Claim,
    Given,
    Nacked,
    close_group,
    extend,
    let_go,
    reject,
    release,
    seek,
    settle,
    settle_missing,
    tick,
    trim,
)
from goqueue.core.lease.events import Change, Moved, Moving, ProducerNamed, Target, decode
from goqueue.core.lease.ledger import Ledger
from goqueue.core.lease.policy import LeasePolicy
from goqueue.core.lease.window import NO_KEY, Entry
from goqueue.model.errors import (
    GoQueueError,
    LeaseExpired,
    LeaseSuperseded,
    MessageSettled,
)
from goqueue.model.priority import LANE_COUNT

GROUPS = ["workers", "auditors"]
MEMBERS = ["ann", "bob"]
ELSEWHERE = Target("archive", 1)
RETRIES = 2
_PICK = st.integers(0, 10_000)
_GROUP = st.sampled_from(GROUPS)


class State(Enum):
    LEASED = "leased"
    WAITING = "waiting"
    HELD = "held"
    SETTLED = "settled"
    MOVED = "moved"
    TRIMMED = "trimmed"


UNFINISHED = (State.LEASED, State.WAITING, State.HELD)


@dataclass
class Known:
    """What became of a record in one group."""

    state: State
    until_ms: int = 0
    deliveries: int = 0
    member: str = ""


@dataclass
class Group:
    start: int  # what is before it is not the group's
    records: dict[int, Known] = field(default_factory=dict)
    receipts: list[tuple[Claim, str]] = field(default_factory=list)  # with the member that got it
    committed: int = 0


class Leases(RuleBasedStateMachine):
    keeps_key_order = False

    def __init__(self) -> None:
        super().__init__()
        policy = LeasePolicy(
            retry_count_max=RETRIES,
            dead_letters=Target("orders.dlq", 0),
            keeps_key_order=self.keeps_key_order,
        )
        self.bench = Bench(policy)
        self.replica = Ledger()  # rebuilt from the log or from snapshots, and kept up by the log
        self.seen_count = 0  # of the log, by the replica
        self.groups: dict[str, Group] = {}
        self.dead: dict[str, list[int]] = {}  # by group, in the order of their moves

    @initialize()
    def begin(self) -> None:
        self.publish(4, 2, NO_KEY)
        for name in GROUPS:
            self.join(name)

    # ---------------------------------------------------------------- the world

    @rule(count=st.integers(1, 6), lane=st.integers(0, LANE_COUNT - 1), key=st.integers(-1, 2))
    def publish(self, count: int, lane: int, key: int) -> None:
        self.bench.publish(count, lane=lane, key=key)

    @rule(by_ms=st.sampled_from([500, 1_000, 2_000, 5_000, -3_000]), ticks=st.booleans())
    def pass_time(self, by_ms: int, ticks: bool) -> None:
        """Clocks are set back, too."""
        self.bench.now_ms += by_ms
        if ticks:
            self.tick()

    @rule(what=st.sampled_from(["retain", "delete", "seek", "lose", "name"]), name=_GROUP, pick=_PICK)
    def happen_rarely(self, what: str, name: str, pick: int) -> None:
        match what:
            case "retain":
                self.retain_less(pick % 5)
            case "delete" if pick % 5 == 0:
                self.delete(name)
                self.join(name)
            case "seek" if pick % 3 == 0:
                self.send_elsewhere(name, pick // 3)
            case "lose":
                self.lose_record(name, pick)
            case "name" if not self.bench.ledger.moves:
                self.bench.append(ProducerNamed(pick, 0))

    def retain_less(self, count: int) -> None:
        bench = self.bench
        bench.log_start = min(bench.log_start + count, len(bench.records))
        for name, group in self.groups.items():
            bench.write(trim(bench.window(name), bench.log_start))
            for offset in range(group.start, bench.log_start):
                known = group.records.get(offset)
                if known is None or known.state in UNFINISHED:
                    group.records[offset] = Known(State.TRIMMED)
            self._free_keys(group)

    def join(self, name: str) -> None:
        self.bench.open(name, self.bench.log_start)
        self.groups[name] = Group(self.bench.log_start, committed=self.bench.log_start)

    def delete(self, name: str) -> None:
        del self.groups[name]
        self.bench.write(close_group(self.bench.ledger, name))

    def send_elsewhere(self, name: str, pick: int) -> None:
        bench = self.bench
        start = bench.log_start + pick % (len(bench.records) - bench.log_start + 1)
        incarnation = bench.window(name).incarnation
        bench.write(seek(bench.window(name), start))
        assert bench.window(name).incarnation == incarnation + 1
        self.groups[name] = Group(start, committed=start)

    # ---------------------------------------------------------------- giving

    @rule(
        name=_GROUP,
        member=st.sampled_from(MEMBERS),
        limit=st.integers(1, 8),
        visibility_ms=st.sampled_from([800, 3_000]),
    )
    def lease(self, name: str, member: str, limit: int, visibility_ms: int) -> None:
        bench, group = self.bench, self.groups[name]
        decision = bench.leasing(limit, member=member, group_id=name, visibility_ms=visibility_ms)
        given = bench.write(decision)
        assert len(given) <= limit
        assert len({one.offset for one in given}) == len(given)
        for one in given:
            self._check_given(group, one)
        for offset, entry in bench.window(name).entries.items():
            if entry.is_held and offset not in group.records:
                group.records[offset] = Known(State.HELD)
        for one in given:
            group.records[one.offset] = Known(
                State.LEASED, bench.now_ms + visibility_ms, one.deliveries, member
            )
            group.receipts.append((Claim(one.offset, one.deliveries), member))

    def _check_given(self, group: Group, one: Given) -> None:
        bench = self.bench
        assert bench.records[one.offset][0] == one.lane
        known = group.records.get(one.offset)
        if known is None:
            assert one.offset >= max(group.start, bench.log_start)
            assert one.deliveries == 1
        else:
            assert known.state is State.WAITING
            assert known.until_ms <= bench.now_ms
            assert one.deliveries == known.deliveries + 1
        assert one.deliveries <= RETRIES + 1
        if self.keeps_key_order:
            self._check_order(group, one)

    def _check_order(self, group: Group, one: Given) -> None:
        lane, key = self.bench.records[one.offset]
        for offset, known in group.records.items():
            if offset == one.offset or key == NO_KEY or self.bench.records[offset][1] != key:
                continue
            assert known.state not in (State.LEASED, State.WAITING), f"{offset} has the key of {one.offset}"
            if offset < one.offset and self.bench.records[offset][0] == lane:
                assert known.state not in UNFINISHED, f"{one.offset} overtakes {offset}"
        for offset in range(max(group.start, self.bench.log_start), one.offset):
            if self.bench.records[offset] == (lane, key) and key != NO_KEY:
                assert offset in group.records, f"{one.offset} overtakes {offset}"

    # ---------------------------------------------------------------- finishing

    @rule(name=_GROUP, picks=st.lists(_PICK, min_size=1, max_size=4), moves_cursors=st.booleans())
    def ack(self, name: str, picks: list[int], moves_cursors: bool) -> None:
        bench, group = self.bench, self.groups[name]
        window = bench.window(name)
        cursors = bench.expected_cursors(window) if moves_cursors else ()
        shown = self._receipts(group, picks)
        replies = bench.write(settle(window, shown, now_ms=bench.now_ms, cursors=cursors))
        for offset in self._counting(group, shown, replies, MessageSettled):
            self._finish(group, offset, State.SETTLED)

    @rule(
        name=_GROUP,
        picks=st.lists(_PICK, min_size=1, max_size=4),
        delay_ms=st.sampled_from([None, 0, 700]),
    )
    def nack(self, name: str, picks: list[int], delay_ms: int | None) -> None:
        bench, group = self.bench, self.groups[name]
        shown = self._receipts(group, picks)
        decision = release(
            bench.ledger,
            bench.window(name),
            shown,
            policy=bench.policy,
            now_ms=bench.now_ms,
            delay_ms=delay_ms,
            reason="no",
        )
        replies = bench.write(decision)
        errors = [None if isinstance(reply, Nacked) else reply for reply in replies]
        for offset in self._counting(group, shown, errors, LeaseExpired):
            deliveries = group.records[offset].deliveries
            self._give_back(group, offset, _backoff_ms(deliveries) if delay_ms is None else delay_ms)
        for claim, reply in zip(shown, replies, strict=True):
            if isinstance(reply, Nacked):
                assert reply.is_dead == (group.records[claim.offset].state is State.MOVED)
        self._note_moves(name, decision.events)

    @rule(name=_GROUP, picks=st.lists(_PICK, min_size=1, max_size=3))
    def reject(self, name: str, picks: list[int]) -> None:
        bench, group = self.bench, self.groups[name]
        shown = self._receipts(group, picks)
        decision = reject(
            bench.ledger,
            bench.window(name),
            shown,
            policy=bench.policy,
            now_ms=bench.now_ms,
            reason="never",
        )
        replies = bench.write(decision)
        for offset in self._counting(group, shown, replies, MessageSettled):
            self._finish(group, offset, State.MOVED)
        self._note_moves(name, decision.events)

    @rule(
        name=_GROUP,
        picks=st.lists(_PICK, min_size=1, max_size=3),
        timeout_ms=st.sampled_from([0, 900, 4_000]),
        is_added=st.booleans(),
    )
    def extend(self, name: str, picks: list[int], timeout_ms: int, is_added: bool) -> None:
        bench, group = self.bench, self.groups[name]
        shown = self._receipts(group, picks)
        decision = extend(
            bench.ledger,
            bench.window(name),
            shown,
            policy=bench.policy,
            now_ms=bench.now_ms,
            timeout_ms=timeout_ms,
            is_added=is_added,
        )
        replies = bench.write(decision)
        errors = [reply if isinstance(reply, GoQueueError) else None for reply in replies]
        for offset in self._counting(group, shown, errors, None):
            known = group.records[offset]
            until_ms = (known.until_ms if is_added else bench.now_ms) + timeout_ms
            if until_ms <= bench.now_ms:
                self._give_back(group, offset, 0)
            else:
                known.until_ms = until_ms
        self._note_moves(name, decision.events)

    @rule(name=_GROUP, member=st.sampled_from(MEMBERS))
    def leave(self, name: str, member: str) -> None:
        bench, group = self.bench, self.groups[name]
        decision = let_go(bench.ledger, bench.window(name), member, policy=bench.policy, now_ms=bench.now_ms)
        held = [
            offset
            for offset, known in group.records.items()
            if known.state is State.LEASED and known.member == member
        ]
        assert bench.write(decision) == len(held)
        for offset in held:
            self._give_back(group, offset, 0)
        self._note_moves(name, decision.events)

    @rule()
    def tick(self) -> None:
        bench = self.bench
        decision = tick(bench.ledger, lambda _: bench.policy, bench.now_ms)
        bench.write(decision)
        for name, group in self.groups.items():
            for offset, known in group.records.items():
                if known.state is State.LEASED and known.until_ms <= bench.now_ms:
                    waits_ms = known.until_ms + _backoff_ms(known.deliveries) - bench.now_ms
                    self._give_back(group, offset, max(waits_ms, 0))
            number = bench.ledger.numbers[name]
            self._note_moves(name, [one for one in decision.events if one.group == number])  # type: ignore[union-attr]  # ticks make events of groups only

    def lose_record(self, name: str, pick: int) -> None:
        """Compaction took it."""
        bench, group = self.bench, self.groups[name]
        if not group.records:
            return
        offset = sorted(group.records)[pick % len(group.records)]
        bench.write(settle_missing(bench.window(name), [offset, offset]))
        if group.records[offset].state in UNFINISHED:
            self._finish(group, offset, State.SETTLED)

    # ---------------------------------------------------------------- the log

    @rule()
    def carry_out_move(self) -> None:
        moves = self.bench.ledger.moves
        if moves:
            self.bench.append(Moved(min(moves)))

    @rule()
    def save_snapshot(self) -> None:
        self._catch_up()
        self.replica = copy_of(self.replica)

    @rule(pick=_PICK)
    def tear_snapshot(self, pick: int) -> None:
        """A crash: the parts that got to the disk are followed by other events."""
        self._catch_up()
        parts = list(self.bench.ledger.snapshot())
        for part in parts[: pick % len(parts)]:
            self.replica.apply(through_the_log(part))

    @rule(pick=_PICK)
    def lose_part_of_a_snapshot(self, pick: int) -> None:
        """Damage, or a power cut: a part in the middle is missing, so the rest of it counts for nothing."""
        self._catch_up()
        parts = list(self.bench.ledger.snapshot())
        lost = pick % len(parts)
        for index, part in enumerate(parts):
            if index == lost:
                self.replica.interrupt(1)
            else:
                self.replica.apply(through_the_log(part))
        assert self.replica.damage is not None
        for part in self.replica.snapshot():  # as a start does then
            self.replica.apply(through_the_log(part))
        assert self.replica.damage is None

    @rule()
    def restart(self) -> None:
        self._catch_up()
        self.bench.ledger = self.replica
        self.replica = Ledger()
        for part in self.bench.ledger.snapshot():
            self.replica.apply(through_the_log(part))

    # ---------------------------------------------------------------- what must hold

    @invariant()
    def replayed_state_equals_live_state(self) -> None:
        self._catch_up()
        now_ms = self.bench.now_ms
        assert facts(self.replica, now_ms) == facts(self.bench.ledger, now_ms)

    @invariant()
    def snapshot_equals_live_state(self) -> None:
        now_ms = self.bench.now_ms
        assert facts(copy_of(self.bench.ledger), now_ms) == facts(self.bench.ledger, now_ms)

    @invariant()
    def every_record_is_in_one_place(self) -> None:
        for name, group in self.groups.items():
            window = self.bench.window(name)
            entries = {offset: _state(entry) for offset, entry in window.entries.items()}
            assert entries == {
                offset: (known.state, known.deliveries)
                for offset, known in group.records.items()
                if known.state in UNFINISHED
            }
            for offset in range(group.start, len(self.bench.records)):
                is_behind = offset < window.cursors[self.bench.records[offset][0]]
                assert is_behind == (offset in group.records), f"{name} and offset {offset}"

    @invariant()
    def prefix_is_finished_and_never_goes_back(self) -> None:
        for name, group in self.groups.items():
            committed = self.bench.window(name).committed_offset
            assert committed >= group.committed
            group.committed = committed
            for offset in range(group.start, committed):
                assert group.records[offset].state not in UNFINISHED
            unfinished = [at for at, known in group.records.items() if known.state in UNFINISHED]
            assert all(offset >= committed for offset in unfinished)

    @invariant()
    def members_hold_what_they_were_given(self) -> None:
        for name, group in self.groups.items():
            counts: dict[str, int] = {}
            for known in group.records.values():
                if known.state is State.LEASED:
                    counts[known.member] = counts.get(known.member, 0) + 1
            window = self.bench.window(name)
            assert window.in_flight == counts
            assert window.in_flight_count == sum(counts.values())

    @invariant()
    def what_is_ready_is_offered(self) -> None:
        """Nothing is forgotten, whatever the clock does."""
        for name, group in self.groups.items():
            window = self.bench.window(name)
            for lane in range(LANE_COUNT):
                assert window.ready(lane, self.bench.now_ms, 1_000) == sorted(
                    offset
                    for offset, known in group.records.items()
                    if known.state is State.WAITING
                    and known.until_ms <= self.bench.now_ms
                    and self.bench.records[offset][0] == lane
                )

    @invariant()
    def what_is_counted_is_there(self) -> None:
        for ledger in (self.bench.ledger, self.replica):
            for window in ledger.windows.values():
                check_counts(window)

    @invariant()
    def moves_to_one_place_follow_each_other(self) -> None:
        after: dict[Target, int] = {}
        for _, one in sorted(self.bench.ledger.moves.items()):
            assert one.sequence == after.get(one.target, one.sequence)
            after[one.target] = one.sequence + len(one.letters)
        for target, sequence in after.items():
            assert self.bench.ledger.sequences[target] == sequence

    # ---------------------------------------------------------------- pieces

    def _catch_up(self) -> None:
        for data in self.bench.log[self.seen_count :]:
            self.replica.apply(decode(data))
        self.seen_count = len(self.bench.log)

    def _receipts(self, group: Group, picks: list[int]) -> list[Claim]:
        """Mostly of what is leased; some by the count of the delivery, some by the member's name."""
        held = [
            (claim, member)
            for claim, member in group.receipts
            if group.records[claim.offset].state is State.LEASED
            and group.records[claim.offset].deliveries == claim.deliveries
        ]
        found = []
        for pick in picks:
            among = held if held and pick % 4 else group.receipts
            if among:
                claim, member = among[pick % len(among)]
                found.append(claim if pick % 3 else Claim(claim.offset, None, member))
        return found

    def _counting(
        self,
        group: Group,
        shown: list[Claim],
        replies: Sequence[GoQueueError | None],
        again: type[GoQueueError] | None,
    ) -> list[int]:
        """The offsets of claims that count. Each answer must be right; `again` is that of a record's second claim."""
        found: list[int] = []
        for claim, reply in zip(shown, replies, strict=True):
            expected = self._verdict(group, claim)
            if expected is None and claim.offset in found:
                expected = again
            elif expected is None:
                found.append(claim.offset)
            assert expected is (None if reply is None else type(reply))
        return found

    def _verdict(self, group: Group, claim: Claim) -> type[GoQueueError] | None:
        known = group.records[claim.offset]
        if known.state not in UNFINISHED:
            return MessageSettled
        if claim.deliveries not in (None, known.deliveries) or claim.member not in (None, known.member):
            return LeaseSuperseded
        if known.state is not State.LEASED or known.until_ms <= self.bench.now_ms:
            return LeaseExpired
        return None

    def _give_back(self, group: Group, offset: int, wait_ms: int) -> None:
        known = group.records[offset]
        if known.deliveries > RETRIES:
            self._finish(group, offset, State.MOVED)
        else:
            known.state, known.until_ms = State.WAITING, self.bench.now_ms + wait_ms

    def _finish(self, group: Group, offset: int, state: State) -> None:
        group.records[offset].state = state
        self._free_keys(group)

    def _free_keys(self, group: Group) -> None:
        """The lowest held record of a key that nobody has may go."""
        busy = {
            self.bench.records[offset][1]
            for offset, known in group.records.items()
            if known.state in (State.LEASED, State.WAITING)
        }
        for offset, known in sorted(group.records.items()):
            key = self.bench.records[offset][1]
            if known.state is State.HELD and key not in busy:
                known.state, known.until_ms = State.WAITING, 0
                busy.add(key)

    def _note_moves(self, name: str, events: list[Change]) -> None:
        """Each dead letter leaves once; a group that begins anew may lose the same record again."""
        group = self.groups[name]
        for event in events:
            if isinstance(event, Moving):
                for letter in event.letters:
                    known = group.records[letter.offset]
                    assert known.state is State.MOVED
                    assert letter.deliveries == known.deliveries
                    assert letter.member == known.member


class LeasesInKeyOrder(Leases):
    keeps_key_order = True


def _backoff_ms(deliveries: int) -> int:
    return (1_000, 2_000, 4_000)[deliveries - 1]


def _state(entry: Entry) -> tuple[State, int]:
    state = State.LEASED if entry.is_leased else State.HELD if entry.is_held else State.WAITING
    return state, entry.deliveries


_settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestLeases = Leases.TestCase
TestLeases.settings = _settings
TestLeasesInKeyOrder = LeasesInKeyOrder.TestCase
TestLeasesInKeyOrder.settings = _settings
