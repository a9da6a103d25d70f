"""Which partitions of a keyed topic a group is not given, by how far it has come in the others."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from goqueue.core.cluster import scaling
from goqueue.core.cluster.scaling import Gate, Scaling
from goqueue.core.group.assignors import ASSIGNORS, MemberSubscription
from goqueue.core.group.consumer_events import pack, unpack
from goqueue.core.group.gates import (
    GateNotes,
    Gates,
    GroupProgress,
    assign_open,
    blocked,
    is_past,
    needed_first,
    unpassed,
)
from goqueue.core.group.protocol_assignment import assigned_partitions, without_partitions
from goqueue.core.group.subscription import owned_partitions


class Reader:
    """A group in the topic `t`."""

    def __init__(self, **committed: int) -> None:
        self.offsets = {("t", int(name[1:])): offset for name, offset in committed.items()}
        self.notes = GateNotes()

    @property
    def progress(self) -> GroupProgress:
        return GroupProgress("g", "t", lambda group, place: self.offsets.get(place), self.notes)

    def blocked(self, now: Scaling) -> list[int]:
        return sorted(blocked(now, self.progress))

    def commit(self, partition: int, offset: int) -> None:
        self.offsets["t", partition] = offset


def grown(now: Scaling, count: int, *ends: int) -> Scaling:
    now = scaling.grow("t", now, count)
    for partition, end in enumerate(ends):
        now = scaling.fence(now, partition, end)
    return now


def shrunk(now: Scaling, count: int, *ends: int) -> Scaling:
    """Up to the end of merging: the first ends are those of what stays."""
    now = scaling.shrink("t", now, count)
    for partition, end in enumerate(ends):
        assert now.may_fence(partition)
        now = scaling.fence(now, partition, end)
    return now


def test_new_partition_is_not_given_before_its_parent_is_read_to_the_fence() -> None:
    now = grown(scaling.begin(2), 4, 10, 20)
    reader = Reader(p0=10, p1=19)
    assert reader.blocked(now) == [3]
    reader.commit(1, 20)
    assert reader.blocked(now) == []


def test_partition_that_has_no_fence_yet_is_not_given_to_anybody() -> None:
    now = scaling.grow("t", scaling.begin(2), 4)
    reader = Reader(p0=1_000, p1=1_000)
    assert reader.blocked(now) == [2, 3]
    assert reader.blocked(scaling.fence(now, 1, 7)) == [2]


def test_what_lies_behind_the_last_record_need_not_be_committed() -> None:
    now = grown(scaling.begin(1), 2, 10)
    reader = Reader(p0=8)
    assert reader.blocked(now) == [1]
    reader.notes.note_read_out("t", Gate(1, 0, 10), 8)
    assert reader.blocked(now) == []
    reader.commit(0, 7)
    assert reader.blocked(now) == [1]


def test_partition_that_never_had_anything_holds_up_nobody() -> None:
    reader = Reader()
    assert reader.blocked(grown(scaling.begin(1), 2, 0)) == []
    now = shrunk(scaling.begin(2), 1, 7, 0)
    assert reader.blocked(now) == []
    assert unpassed(now, reader.progress) == []


def test_partition_that_was_emptied_by_retention_holds_up_nobody() -> None:
    now = grown(scaling.begin(1), 2, 10)
    reader = Reader()
    assert reader.blocked(now) == [1]
    reader.notes.note_read_out("t", Gate(1, 0, 10), 0)
    assert reader.blocked(now) == []


def test_group_that_has_committed_in_the_new_partition_has_passed() -> None:
    assert Reader(p1=0).blocked(grown(scaling.begin(1), 2, 10)) == []


def test_group_without_commits_is_let_through_when_it_has_waited_and_only_then() -> None:
    now = grown(scaling.begin(1), 2, 10)
    reader = Reader()
    reader.notes.note_waived("g", "t", Gate(1, 0, 10))
    assert reader.blocked(now) == []
    reader.commit(0, 3)  # it does commit, and is not there yet
    assert reader.blocked(now) == [1]
    reader.notes.forget_group("g")
    reader.offsets.clear()
    assert reader.blocked(now) == [1]


def test_gate_behind_a_gate_is_passed_only_after_it() -> None:
    now = grown(grown(scaling.begin(1), 2, 10), 4, 30, 0)
    reader = Reader(p0=5)
    reader.notes.note_read_out("t", Gate(3, 1, 0), 0)  # nothing was ever written to 1
    assert reader.blocked(now) == [1, 2, 3]
    reader.commit(0, 10)
    assert reader.blocked(now) == [2]
    assert list(now.ancestors(3)) == [1, 0]


def test_partition_that_stays_is_taken_away_until_those_that_go_are_read() -> None:
    now = shrunk(scaling.begin(4), 2, 10, 10, 30, 40)
    reader = Reader(p0=10, p1=10, p2=29, p3=40)
    assert reader.blocked(now) == [0]
    reader.commit(2, 30)
    assert reader.blocked(now) == []
    assert Reader(p0=10, p1=10).blocked(now) == [0, 1], "commits in what stays say nothing"


def test_partition_that_goes_is_taken_from_who_has_read_it() -> None:
    now = scaling.release(shrunk(scaling.begin(2), 1, 5, 7))
    assert Reader(p0=5, p1=6).blocked(now) == [0]
    assert Reader(p0=5, p1=7).blocked(now) == [1]
    assert Reader(p0=5, p1=7).blocked(scaling.finish(now)) == []


def test_what_was_committed_in_a_partition_that_is_no_more_is_of_the_past() -> None:
    now = scaling.finish(scaling.release(shrunk(scaling.begin(2), 1, 5, 7)))
    now = grown(structs.replace(now, next_epoch=4), 2, 9)

    def scaling_of(topic: str) -> Scaling | None:
        return now if topic == "t" else None

    assert is_past(scaling_of, ("t", 1), 3)
    assert not is_past(scaling_of, ("t", 1), 4)
    assert not is_past(scaling_of, ("t", 0), 3)  # it never went
    assert not is_past(scaling_of, ("t", 1), -1)  # nobody knows
    assert not is_past(scaling_of, ("other", 1), 3)


def test_group_behind_the_last_growth_reads_what_stays_first() -> None:
    now = shrunk(grown(scaling.begin(1), 2, 10), 1, 50, 7)
    assert now.gates == (Gate(1, 0, 10), Gate(0, 1, 7))
    reader = Reader(p0=4)
    assert reader.blocked(now) == [1], "or it would come to neither"
    assert needed_first(now, reader.progress) == {0}
    reader.commit(0, 10)
    assert reader.blocked(now) == [0]
    reader.commit(1, 7)
    assert reader.blocked(now) == []


@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 30)), max_size=40),
    st.sampled_from([(2, 4, 12, 2), (2, 6, 3), (3, 6, 2), (3, 12, 4), (4, 12, 6), (1, 6, 12, 4)]),
    st.integers(0, 3),
)
def test_group_that_reads_what_it_is_given_comes_to_the_end(
    steps: list[tuple[int, int]], counts: tuple[int, ...], change_count: int
) -> None:
    """Whatever it has read before, and however the topic has changed: there is always something to go on with, and what comes back to
    another partition than it has left is no circle."""
    ends = [10] * 12
    now = scaling.begin(counts[0])
    for count in counts[1:][:change_count]:
        if count > now.key_count:
            now = grown(now, count, *ends[: now.key_count])
        else:
            now = shrunk(now, count, *ends[: now.key_count])
    reader = Reader()
    for partition, offset in steps:
        given = partition < now.partition_count and partition not in reader.blocked(now)
        if given and offset >= reader.offsets.get(("t", partition), 0):
            reader.commit(partition, offset)
    for _ in range(now.partition_count + 1):
        for partition in set(range(now.partition_count)) - set(reader.blocked(now)):
            reader.commit(partition, max(10, reader.offsets.get(("t", partition), 0)))
    assert reader.blocked(now) == []
    assert unpassed(now, reader.progress) == []


def test_unknown_partitions_of_keyed_topics_are_withheld_and_those_of_others_are_not() -> None:
    now = scaling.begin(2)
    gates = Gates(lambda topic: now if topic == "t" else None, lambda group, place: None, GateNotes())
    assert gates.withheld("g", [("t", 1), ("t", 2), ("other", 7)]) == [("t", 2)]


def test_group_begins_at_the_start_of_what_has_grown_out_of_what_it_reads() -> None:
    now = grown(grown(scaling.begin(1), 2, 10), 4, 30, 0)
    offsets = {("g", ("t", 0)): 1}
    gates = Gates(lambda topic: now, lambda group, place: offsets.get((group, place)), GateNotes())
    assert gates.begins_at_start("g", ("t", 3))
    assert not gates.begins_at_start("g", ("t", 0))
    assert not gates.begins_at_start("another", ("t", 3))


def test_notes_of_a_topic_are_forgotten_with_it() -> None:
    notes = GateNotes()
    notes.note_read_out("t", Gate(1, 0, 10), 3)
    notes.note_waived("g", "t", Gate(1, 0, 10))
    notes.note_waived("g", "u", Gate(1, 0, 10))
    notes.forget_topic("t")
    assert not notes.is_read_out("t", Gate(1, 0, 10), 9)
    assert not notes.is_waived("g", "t", Gate(1, 0, 10))
    assert notes.is_waived("g", "u", Gate(1, 0, 10))


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_assignors_give_everything_but_what_is_closed(name: str) -> None:
    members = [MemberSubscription(member, ("a", "t")) for member in ("m1", "m2", "m3")]
    closed = {"t": frozenset({1, 3, 4, 5})}
    before = {"m1": pack([("t", 1), ("t", 2)]), "m2": (), "m3": pack([("a", 0)])}
    found = assign_open(ASSIGNORS[name], members, {"a": 2, "t": 6}, closed, before)
    given = sorted(place for one in found.values() for place in unpack(one))
    assert given == [("a", 0), ("a", 1), ("t", 0), ("t", 2)]
    counts = sorted(len(unpack(one)) for one in found.values())
    assert name == "range" or counts == [1, 1, 2]
    if name == "uniform":
        assert ("t", 2) in unpack(found["m1"]), "it had it before"


# ---------------------------------------------------------------- assignments of classic groups


def _strings(*names: str) -> bytes:
    return b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in names)


def _assignment(version: int, topics: dict[str, list[int]], own: bytes | None) -> bytes:
    data = struct.pack(">hi", version, len(topics))
    for name, indexes in topics.items():
        data += _strings(name) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return data + (struct.pack(">i", -1) if own is None else struct.pack(">i", len(own)) + own)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("own", [None, b"", b"of the assignor"])
def test_partitions_are_taken_out_of_assignments_and_the_rest_stays(version: int, own: bytes | None) -> None:
    data = _assignment(version, {"t": [0, 3, 4], "ä": [1]}, own)
    assert assigned_partitions(data) == [("t", 0), ("t", 3), ("t", 4), ("ä", 1)]
    assert without_partitions(data, {("t", 3), ("ä", 1)}) == _assignment(version, {"t": [0, 4]}, own)
    assert without_partitions(data, {("t", 9)}) == data


@given(st.binary(max_size=40))
def test_what_is_no_assignment_stays_as_it_is(data: bytes) -> None:
    places = set(assigned_partitions(data))
    if not places:
        assert without_partitions(data, {("t", 0)}) == data


def test_owned_partitions_are_read_from_subscriptions_that_have_them() -> None:
    head = struct.pack(">i", 1) + _strings("t") + struct.pack(">i", 2) + b"xy"
    owned = struct.pack(">i", 1) + _strings("t") + struct.pack(">i2i", 2, 5, 6)
    assert owned_partitions(struct.pack(">h", 1) + head + owned) == [("t", 5), ("t", 6)]
    assert owned_partitions(struct.pack(">h", 3) + head + owned + b"more") == [("t", 5), ("t", 6)]
    assert owned_partitions(struct.pack(">h", 0) + head) == []
    assert owned_partitions(b"") == []


def test_offsets_that_were_set_for_every_partition_do_not_open_a_gate() -> None:
    now = grown(scaling.begin(1), 2, 10)
    assert Reader(p0=0, p1=0).blocked(now) == [1], "as after a reset to the earliest"
    assert Reader(p1=0).blocked(now) == [], "it was given it without ever committing in the old one"


def test_what_stays_is_given_again_only_when_something_is_left_there() -> None:
    """What a coordinator has noted is gone with it. The group may be past the gate, and would read what has come since the holds were
    released before it has read what goes."""
    now = scaling.release(shrunk(grown(scaling.begin(1), 2, 10), 1, 50, 7))
    reader, gate = Reader(p0=4), Gate(1, 0, 10)
    assert reader.blocked(now) == [0, 1]
    reader.notes.note_left("g", "t", gate)
    assert reader.blocked(now) == [1]
    reader.notes.forget_group("g")
    assert reader.blocked(now) == [0, 1]
    reader.notes.note_read_out("t", gate, 4)
    assert reader.blocked(now) == [0]
