"""Topics with `scaling=keyed`: whose keys go where while partitions come and go, and what groups wait for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from goqueue.core.catalog import Catalog
from goqueue.core.cluster.commands import (
    AlterTopic,
    Command,
    CreateTopic,
    DeleteTopic,
    FencePartition,
    FinishShrinking,
    GrowTopic,
    ReleaseHolds,
    ReportDrained,
    ShrinkTopic,
)
from goqueue.core.cluster.events import Event, decode_events, encode_events
from goqueue.core.cluster.partitions import OWN_EPOCHS
from goqueue.core.cluster.scaling import Gate, Hold, Scaling, begin, fence, finish, grow, shrink
from goqueue.model.errors import InvalidPartitions, InvalidSetting
from goqueue.model.limits import Limits

KEYED = {"scaling": "keyed"}


class World:
    """A catalogue with one topic, `t`; every event goes through its bytes."""

    def __init__(self, partition_count: int) -> None:
        self.catalog = Catalog(Limits())
        self.do(CreateTopic("t", partition_count, KEYED))

    def do(self, command: Command) -> list[Event]:
        events = decode_events(encode_events(self.catalog.decide(command, 0)))
        for event in events:
            self.catalog.apply(event)
        return events

    @property
    def now(self) -> Scaling:
        found = self.catalog.scaling("t")
        assert found is not None
        return found

    @property
    def stage(self) -> str:
        return self.now.stage

    def fence(self, partition: int, offset: int, epoch: int = OWN_EPOCHS) -> list[Event]:
        return self.do(FencePartition("t", self.catalog.topic("t").id, partition, epoch, offset))

    def grow(self, partition_count: int, offset: int = 10) -> None:
        old = self.now.key_count
        self.do(GrowTopic("t", partition_count))
        for partition in range(old):
            assert self.fence(partition, offset)

    def shrink(self, partition_count: int, offset: int = 10) -> None:
        """As far as it goes without the groups."""
        old = self.now.key_count
        self.do(ShrinkTopic("t", partition_count))
        for partition in range(old):
            assert self.fence(partition, offset)

    def release(self) -> list[Event]:
        return self.do(ReleaseHolds("t", self.catalog.topic("t").id))

    def drain(self, partition: int, epoch: int = OWN_EPOCHS) -> list[Event]:
        return self.do(ReportDrained("t", self.catalog.topic("t").id, partition, epoch))

    def finish(self) -> list[Event]:
        return self.do(FinishShrinking("t", self.catalog.topic("t").id))

    def shrink_at_once(self, partition_count: int) -> None:
        old = self.now.key_count
        self.shrink(partition_count)
        self.release()
        for partition in range(partition_count, old):
            self.drain(partition)
        assert self.finish()


# ---------------------------------------------------------------- growing


def test_a_new_topic_spreads_its_keys_over_all_partitions() -> None:
    world = World(3)
    assert [world.now.home(0, hashed) for hashed in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert world.now.home(2, None) == 2  # without a key it stays where it came to


def test_keys_that_move_wait_until_their_old_partition_is_fenced() -> None:
    world = World(3)
    world.do(GrowTopic("t", 6))
    assert world.now.home(0, 0) == 0
    assert world.now.home(0, 3) is None  # 3 takes them from 0, which has not said yet where it ends
    assert world.now.home(3, None) is None
    world.fence(0, 17)
    assert world.now.home(0, 3) == world.now.home(3, 3) == world.now.home(3, None) == 3
    assert world.now.home(1, 4) is None
    assert world.now.gates == (Gate(3, 0, 17),)


def test_growth_is_over_when_every_old_partition_is_fenced() -> None:
    world = World(2)
    world.do(GrowTopic("t", 6))
    world.fence(1, 5)
    assert world.stage == "growing"
    world.fence(0, 4)
    assert world.stage == "steady"
    assert set(world.now.gates) == {Gate(3, 1, 5), Gate(5, 1, 5), Gate(2, 0, 4), Gate(4, 0, 4)}


def test_partitions_that_grew_twice_have_their_gates_in_a_row() -> None:
    world = World(1)
    world.grow(2, 7)
    world.grow(4, 9)
    assert [*world.now.gates_of(1)] == [Gate(1, 0, 7)]
    assert [*world.now.gates_of(3)] == [Gate(3, 1, 9)]


@pytest.mark.parametrize("count", [4, 5, 7])
def test_growth_to_anything_but_a_multiple_is_refused_with_what_would_do(count: int) -> None:
    with pytest.raises(InvalidPartitions, match=r"a multiple of that, for instance 6 or 9, not \d"):
        World(3).do(GrowTopic("t", count))


def test_one_change_at_a_time() -> None:
    world = World(3)
    world.do(GrowTopic("t", 6))
    with pytest.raises(InvalidPartitions, match="are changing from 3 to 6"):
        world.do(GrowTopic("t", 12))
    with pytest.raises(InvalidPartitions, match="are changing from 3 to 6"):
        world.do(ShrinkTopic("t", 3))


def test_a_fence_counts_once_and_only_from_the_leader_of_that_topic() -> None:
    world = World(1)
    assert world.fence(0, 3) == []  # nothing changes
    world.do(GrowTopic("t", 2))
    assert world.fence(0, 3, epoch=7) == []
    assert world.do(FencePartition("t", 99, 0, OWN_EPOCHS, 3)) == []
    assert world.do(FencePartition("other", 1, 0, OWN_EPOCHS, 3)) == []
    assert world.fence(0, 3) != []
    assert world.fence(0, 8) == []


# ---------------------------------------------------------------- shrinking


def test_those_that_stay_are_held_before_the_others_send_anything_on() -> None:
    world = World(4)
    world.do(ShrinkTopic("t", 2))
    assert world.now.home(3, 3) == 3  # as before
    assert not world.now.may_fence(3)
    world.fence(1, 20)
    assert world.now.hold_of(1) == 20
    assert world.now.home(3, 3) == world.now.home(3, None) == 1
    assert world.now.home(2, 2) == 2  # 0 is not held yet
    assert world.now.may_fence(3)


def test_until_the_old_home_of_a_key_has_its_end_only_what_it_sends_on_is_taken() -> None:
    """Else a record that comes straight to the new home could be followed by one that the old home still appends."""
    world = World(4)
    world.do(ShrinkTopic("t", 2))
    world.fence(1, 20)
    assert world.now.home(3, 3) == 1
    assert world.now.home(1, 3) is world.now.home(0, 3) is None
    assert world.now.home(1, 1) == 1
    world.fence(3, 30)
    assert world.now.home(1, 3) == world.now.home(0, 3) == 1


@given(
    counts=st.sampled_from([(3, 6), (2, 12), (6, 3), (12, 2), (4, 1)]),
    fenced=st.lists(st.integers(0, 11), unique=True),
    hashed=st.integers(0, 2**31 - 1),
)
def test_the_modulus_of_a_partition_says_the_same_as_the_home_of_each_key(
    counts: tuple[int, int], fenced: list[int], hashed: int
) -> None:
    old, new = counts
    world = World(old)
    world.do(GrowTopic("t", new) if new > old else ShrinkTopic("t", new))
    for partition in sorted(fenced):
        world.fence(partition, 5)
    for partition in range(max(counts)):
        modulus = world.now.modulus(partition)
        if modulus is not None:
            assert (world.now.home(partition, hashed) == partition) == (hashed % modulus == partition)
            assert world.now.is_open(partition)


def test_what_was_held_is_shown_when_every_group_knows_its_gates() -> None:
    world = World(4)
    world.do(ShrinkTopic("t", 2))
    assert world.release() == []  # too early
    for partition in range(4):
        world.fence(partition, 10 + partition)
    assert list(world.now.holds) == [Hold(0, 10), Hold(1, 11)]
    assert set(world.now.gates) == {Gate(0, 2, 12), Gate(1, 3, 13)}
    assert world.finish() == []
    world.release()
    assert world.stage == "draining"
    assert not world.now.holds


def test_what_is_drained_goes_with_its_gates() -> None:
    world = World(2)
    world.grow(4)
    world.shrink(2)
    assert world.drain(2) == []  # too early
    world.release()
    assert world.drain(1) == world.drain(2, epoch=7) == []
    assert world.drain(2)
    assert world.drain(2) == world.finish() == []
    assert world.now.undrained == (3,)
    world.drain(3)
    world.finish()
    assert world.catalog.topic("t").partition_count == len(world.catalog.partitions_of("t")) == 2
    assert world.now == Scaling(2, 2, next_epoch=world.now.next_epoch)


def test_a_partition_that_comes_back_has_newer_epochs_than_the_one_that_went() -> None:
    world = World(1)
    world.grow(2)
    world.shrink_at_once(1)
    assert world.now.next_epoch > OWN_EPOCHS


def test_it_is_known_in_which_epoch_a_partition_of_this_number_began() -> None:
    steady = Scaling(3, 3, next_epoch=5)
    grown = grow("t", steady, 6)
    assert [grown.first_epoch(partition) for partition in (0, 2, 3, 5)] == [0, 0, 5, 5]
    again = grow("t", structs.replace(grown, stage="steady", unfenced=(), next_epoch=9), 12)
    assert [again.first_epoch(partition) for partition in (2, 3, 6, 11)] == [0, 5, 9, 9]
    shrunk = finish(structs.replace(again, key_count=6, old_count=12, stage="draining"))
    assert [shrunk.first_epoch(partition) for partition in (2, 3, 6)] == [0, 5, 5]


@pytest.mark.parametrize("hashed", [None, 0, 1, 2, 3])
def test_nothing_is_at_home_in_a_partition_that_is_no_more_nor_goes_through_it(hashed: int | None) -> None:
    """Its log may still be open on a node that has not come to close it."""
    world = World(4)
    world.shrink_at_once(2)
    for partition in (2, 3, 99):
        assert world.now.home(partition, hashed) is None
        assert world.now.modulus(partition) is None
        assert not world.now.is_open(partition)


def test_whoever_had_a_topic_shrink_may_say_later_that_what_is_read_goes() -> None:
    world = World(4)
    world.do(ShrinkTopic("t", 2))
    assert not world.now.discards_read
    with pytest.raises(InvalidPartitions, match="with discard_read and the same count"):
        world.do(ShrinkTopic("t", 2))
    with pytest.raises(InvalidPartitions, match="are changing from 4 to 2"):
        world.do(ShrinkTopic("t", 1, discards_read=True))
    before = world.now
    world.do(ShrinkTopic("t", 2, discards_read=True))
    assert world.now == structs.replace(before, discards_read=True)
    with pytest.raises(InvalidPartitions, match=r"has to come to its end first$"):
        world.do(ShrinkTopic("t", 2, discards_read=True))


def test_what_was_said_of_one_change_does_not_count_for_the_next() -> None:
    world = World(4)
    world.do(ShrinkTopic("t", 2, discards_read=True))
    for partition in range(4):
        world.fence(partition, 0)
    world.release()
    for partition in (2, 3):
        world.drain(partition)
    world.finish()
    world.do(ShrinkTopic("t", 1))
    assert not world.now.discards_read


@pytest.mark.parametrize("count", [0, 4, 5, 6, 12])
def test_shrinking_to_anything_but_a_divisor_is_refused_with_what_would_do(count: int) -> None:
    with pytest.raises(InvalidPartitions, match=f"it shrinks to 1 or 2 or 3, not {count}"):
        World(6).do(ShrinkTopic("t", count))


def test_only_topics_with_scaling_keyed_shrink() -> None:
    catalog = Catalog(Limits())
    for event in catalog.decide(CreateTopic("plain", 4, {}), 0):
        catalog.apply(event)
    assert catalog.scaling("plain") is None
    with pytest.raises(InvalidPartitions, match="only one that was created with scaling=keyed"):
        catalog.decide(ShrinkTopic("plain", 2), 0)


# ---------------------------------------------------------------- settings and snapshots


@pytest.mark.parametrize("changes", [{"scaling": None}, {"scaling": "none"}, {"partitioner": "crc32"}])
def test_what_says_where_keys_are_stays(changes: dict[str, str | None]) -> None:
    with pytest.raises(InvalidSetting, match="was chosen when it was created and stays"):
        World(1).do(AlterTopic("t", changes))


def test_a_topic_of_many_partitions_does_not_become_keyed_later() -> None:
    catalog = Catalog(Limits())
    for event in catalog.decide(CreateTopic("plain", 4, {}), 0):
        catalog.apply(event)
    with pytest.raises(InvalidSetting, match="was chosen when it was created"):
        catalog.decide(AlterTopic("plain", KEYED), 0)
    assert catalog.decide(AlterTopic("plain", {"partitioner": "crc32"}), 0)


def test_a_snapshot_has_it_all() -> None:
    world = World(2)
    world.grow(4)
    world.do(ShrinkTopic("t", 1))
    world.fence(0, 5)
    other = Catalog(Limits())
    other.restore(world.catalog.snapshot())
    assert other.scaling("t") == world.now
    assert other.snapshot() == world.catalog.snapshot()


def test_a_deleted_topic_leaves_nothing() -> None:
    world = World(2)
    world.grow(4)
    world.do(DeleteTopic("t"))
    assert world.catalog.scalings() == {}
    world.do(CreateTopic("t", 2, KEYED))
    assert world.now == Scaling(2, 2)


# ---------------------------------------------------------------- any history

counts = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12]), min_size=1, max_size=5)


@given(
    start=st.sampled_from([1, 2, 3]),
    factors=st.lists(st.sampled_from([2, 3]), max_size=3),
    divisor=st.sampled_from([1, 2, 3]),
    hashed=st.integers(0, 10_000),
)
def test_wherever_a_record_was_sent_on_to_before_is_among_its_earlier_homes(
    start: int, factors: list[int], divisor: int, hashed: int
) -> None:
    world = World(start)
    states = [world.now]
    for factor in factors:
        world.grow(world.now.key_count * factor)
        states.append(world.now)
    if divisor > 1 and world.now.key_count % divisor == 0:
        world.shrink(world.now.key_count // divisor)
    for then in states:
        for partition in range(then.partition_count):
            before, home = then.home(partition, hashed), world.now.home(partition, hashed)
            assert home is not None
            if before not in (home, partition):
                assert before in set(world.now.earlier_homes(partition, home))


def test_a_partition_that_has_not_said_where_it_ends_is_not_asked_what_it_holds() -> None:
    """It may still take records that will live elsewhere."""
    world = World(6)
    world.do(ShrinkTopic("t", 3))
    for partition in (0, 1, 2, 4):
        world.fence(partition, 5)
    assert [list(world.now.earlier_homes(0, home)) for home in range(3)] == [[], [4], []]


@given(start=st.sampled_from([1, 2, 3]), wanted=counts, hashed=st.integers(0, 10_000))
def test_a_key_goes_from_partition_to_partition_only_through_gates(
    start: int, wanted: list[int], hashed: int
) -> None:
    """Whichever way the partitions change, the new home of a key waits for the end of its old one."""
    world = World(start)
    for count in wanted:
        old = world.now.key_count
        before = world.now.home(0, hashed)
        if count > old and count % old == 0:
            world.grow(count, offset=100)
        elif count < old and old % count == 0:
            world.shrink(count, offset=100)
        else:
            continue
        after = world.now.home(0, hashed)
        assert after == hashed % count
        if after != before:
            assert before is not None
            assert Gate(after, before, 100) in world.now.gates
        if count < old:
            world.release()
            for partition in range(count, old):
                world.drain(partition)
            world.finish()
        assert (world.now.stage, world.now.unfenced, world.now.holds) == ("steady", (), ())
        assert all(gate.blocked < count and gate.behind < count for gate in world.now.gates)


def test_new_partitions_have_begun_when_the_first_old_one_has_its_fence() -> None:
    """What is committed in those numbers before that is of others that are no more."""
    now = grow("t", begin(2), 4)
    assert now.begun_count == 2
    now = fence(now, 1, 7)
    assert now.begun_count == 4
    assert begin(2).begun_count == 2
    assert shrink("t", begin(2), 1).begun_count == 2
