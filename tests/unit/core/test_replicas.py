"""What a leader knows of its followers: the high watermark, and who is in sync."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from goqueue.core.cluster.partitions import PartitionState
from goqueue.core.replica.replicas import Replicas

LOG, LEDGER = "orders", "__ledger.orders"
LAG_MS = 1_000


def state(*in_sync: int, replicas: tuple[int, ...] = (1, 2, 3), epoch: int = 0) -> PartitionState:
    return PartitionState(replicas, in_sync or replicas, leader=1, leader_epoch=4, epoch=epoch)


def leader(of: PartitionState | None = None, *, min_in_sync: int = 2, end: int = 0) -> Replicas:
    replicas = Replicas(1, of or state(), min_in_sync=min_in_sync, now_ms=0)
    replicas.add_log(LOG, end=end, durable_end=end, high_watermark=0, now_ms=0)
    return replicas


def append(replicas: Replicas, name: str, end: int) -> None:
    """And it is on the leader's disk."""
    replicas.appended(name, end)
    replicas.synced(name, end)


def proposed(replicas: Replicas, now_ms: int, **heard_ms: int) -> tuple[int, ...] | None:
    heard = {int(name.removeprefix("n")): at_ms for name, at_ms in heard_ms.items()}
    return replicas.proposal(now_ms, heard_ms=heard, lag_ms_max=LAG_MS, retry_ms=LAG_MS)


def test_the_high_watermark_waits_for_everybody_in_sync() -> None:
    replicas = leader()
    append(replicas, LOG, 10)
    assert replicas.high_watermark(LOG) == 0
    replicas.fetched(2, LOG, 10, 1)
    assert replicas.high_watermark(LOG) == 0
    replicas.fetched(3, LOG, 7, 1)
    assert replicas.high_watermark(LOG) == 7


def test_the_high_watermark_waits_for_the_leaders_own_disk() -> None:
    replicas = leader()
    replicas.appended(LOG, 10)
    replicas.fetched(2, LOG, 10, 1)
    replicas.fetched(3, LOG, 10, 1)
    assert replicas.high_watermark(LOG) == 0
    replicas.synced(LOG, 6)
    assert replicas.high_watermark(LOG) == 6
    replicas.synced(LOG, 10)
    assert replicas.high_watermark(LOG) == 10


def test_clients_may_read_from_followers_in_sync_whose_log_reaches_to_where_they_are() -> None:
    replicas = leader(state(1, 2))
    append(replicas, LOG, 10)
    assert replicas.readable_at(LOG, 0) == []
    replicas.fetched(2, LOG, 7, 1, log_start=3)
    replicas.fetched(3, LOG, 10, 1)  # has everything, and is not in sync
    assert [replicas.readable_at(LOG, offset) for offset in (2, 3, 7, 8)] == [[], [2], [2], []]
    replicas.began_anew(2, 5)
    assert replicas.readable_at(LOG, 3) == [], "nobody knows what it has now"


def test_what_is_nowhere_else_is_shown_before_it_is_on_disk() -> None:
    replicas = leader(state(replicas=(1,)))
    replicas.appended(LOG, 10)
    assert replicas.high_watermark(LOG) == 10


def test_who_is_not_in_sync_does_not_hold_the_high_watermark_back() -> None:
    replicas = leader(state(1, 2))
    append(replicas, LOG, 10)
    replicas.fetched(2, LOG, 10, 1)
    assert replicas.high_watermark(LOG) == 10


def test_with_too_few_in_sync_nothing_is_committed() -> None:
    replicas = leader(state(1))
    append(replicas, LOG, 10)
    replicas.fetched(2, LOG, 10, 1)
    assert not replicas.has_enough
    assert replicas.high_watermark(LOG) == 0
    replicas.update(state(1, 2, epoch=1), min_in_sync=2)
    assert replicas.high_watermark(LOG) == 10


def test_while_somebody_is_eligible_nothing_is_committed() -> None:
    replicas = leader(structs.replace(state(1), eligible=(2,)), min_in_sync=1)
    append(replicas, LOG, 10)
    assert replicas.high_watermark(LOG) == 0


def test_fewer_replicas_than_wanted_in_sync_are_enough_where_there_are_no_more() -> None:
    replicas = leader(state(1, replicas=(1,)), min_in_sync=2)
    append(replicas, LOG, 3)
    assert replicas.high_watermark(LOG) == 3


def test_a_follower_that_goes_back_does_not_take_the_high_watermark_with_it() -> None:
    replicas = leader()
    append(replicas, LOG, 10)
    replicas.fetched(2, LOG, 10, 1)
    replicas.fetched(3, LOG, 10, 1)
    assert replicas.high_watermark(LOG) == 10
    replicas.fetched(3, LOG, 4, 2)
    assert replicas.high_watermark(LOG) == 10


def test_whoever_is_proposed_counts_already() -> None:
    """The controller may have let it in before this leader hears of it."""
    replicas = leader(state(1, 2))
    append(replicas, LOG, 5)
    replicas.fetched(2, LOG, 5, 1)
    replicas.fetched(3, LOG, 5, 1)
    assert replicas.high_watermark(LOG) == 5
    assert proposed(replicas, 2, n2=2, n3=2) == (1, 2, 3)
    append(replicas, LOG, 9)
    replicas.fetched(2, LOG, 9, 3)
    assert replicas.high_watermark(LOG) == 5
    replicas.fetched(3, LOG, 9, 3)
    assert replicas.high_watermark(LOG) == 9


def test_whoever_is_proposed_goes_on_counting_when_the_same_state_is_told_again() -> None:
    replicas = leader(state(1, 2), end=10)
    replicas.fetched(2, LOG, 10, 1)
    replicas.fetched(3, LOG, 10, 1)
    assert proposed(replicas, 2, n2=2, n3=2) == (1, 2, 3)
    replicas.update(state(1, 2), min_in_sync=2)  # something else of its topic has changed
    append(replicas, LOG, 20)
    replicas.fetched(2, LOG, 20, 3)
    assert replicas.high_watermark(LOG) == 10  # the controller may have let node 3 in by now


def test_whoever_was_proposed_goes_on_counting_until_the_controller_has_answered() -> None:
    replicas = leader(state(1, 2), end=10)
    replicas.fetched(2, LOG, 10, 1)
    replicas.fetched(3, LOG, 10, 1)
    assert proposed(replicas, 2, n2=2, n3=2) == (1, 2, 3)  # no answer comes
    append(replicas, LOG, 20)
    later_ms = 3 * LAG_MS
    replicas.fetched(2, LOG, 20, later_ms)  # node 3 is not heard of any more
    assert proposed(replicas, later_ms, n2=later_ms, n3=2) == (1, 2)  # it asks, so that there is an answer
    assert replicas.high_watermark(LOG) == 10
    replicas.refused()  # nothing has changed: node 3 was never let in
    assert replicas.high_watermark(LOG) == 20
    assert proposed(replicas, 2 * later_ms, n2=2 * later_ms, n3=2) is None


def test_who_falls_behind_for_long_is_proposed_to_leave() -> None:
    replicas = leader()
    append(replicas, LOG, 10)
    replicas.fetched(2, LOG, 10, 100)
    replicas.fetched(3, LOG, 2, 100)
    assert proposed(replicas, 900, n2=900, n3=900) is None
    replicas.fetched(3, LOG, 4, 1_000)  # it goes on, and does not catch up
    assert proposed(replicas, 1_200, n2=1_150, n3=1_150) == (1, 2)


def test_who_has_everything_stays_as_long_as_its_node_is_heard_of() -> None:
    replicas = leader()
    for number in (2, 3):
        replicas.fetched(number, LOG, 0, 1)
    assert proposed(replicas, 50_000, n2=49_500, n3=49_900) is None
    assert proposed(replicas, 51_000, n2=49_500, n3=50_900) == (1, 3)


def test_who_died_with_everything_is_not_proposed_again_before_it_is_heard_of() -> None:
    replicas = leader()
    append(replicas, LOG, 10)
    for number in (2, 3):
        replicas.fetched(number, LOG, 10, 1)
    replicas.update(state(1, 3, epoch=1), min_in_sync=2)  # the controller has fenced node 2
    assert proposed(replicas, 10, n2=1, n3=10) is None
    append(replicas, LOG, 20)
    replicas.fetched(3, LOG, 20, 20)
    assert replicas.high_watermark(LOG) == 20
    assert proposed(replicas, 20, n2=1, n3=20) is None


def test_who_was_away_and_is_heard_of_again_is_proposed_with_what_it_had() -> None:
    replicas = leader()
    append(replicas, LOG, 10)
    for number in (2, 3):
        replicas.fetched(number, LOG, 10, 1)
    replicas.update(state(1, 3, epoch=1), min_in_sync=2)
    assert proposed(replicas, 10, n2=1, n3=10) is None
    assert proposed(replicas, 20, n2=15, n3=20) == (1, 2, 3)


def test_who_begins_anew_is_not_proposed_with_what_it_had() -> None:
    replicas = leader(state(1, 2), min_in_sync=1, end=10)
    replicas.fetched(3, LOG, 10, 10)
    assert replicas.may_join(3)
    replicas.began_anew(3, 20)  # maybe on another disk
    assert not replicas.may_join(3)
    assert proposed(replicas, 30, n2=30, n3=30) is None
    replicas.fetched(3, LOG, 10, 40)
    assert proposed(replicas, 50, n2=50, n3=50) == (1, 2, 3)


def test_who_is_in_sync_and_begins_anew_has_its_time_to_say_where_it_is() -> None:
    replicas = leader(end=10)
    for follower in (2, 3):
        replicas.fetched(follower, LOG, 10, 10)
    replicas.began_anew(3, 5_000)
    assert proposed(replicas, 5_500, n2=5_500, n3=5_500) is None
    assert proposed(replicas, 6_100, n2=6_100, n3=6_100) == (1, 2)


def test_keeping_pace_with_a_busy_leader_is_enough() -> None:
    """It never has everything, but always what there was when it asked last."""
    replicas = leader()
    for step in range(1, 40):
        append(replicas, LOG, 10 * step)
        for number in (2, 3):
            replicas.fetched(number, LOG, 10 * (step - 1), 100 * step)
        assert proposed(replicas, 100 * step, n2=100 * step, n3=100 * step) is None


def test_a_proposal_is_repeated_only_after_a_while() -> None:
    replicas = leader()
    append(replicas, LOG, 1)
    assert proposed(replicas, 2_000) == (1,)
    assert proposed(replicas, 2_900) is None
    assert proposed(replicas, 3_000) == (1,)


def test_who_is_fenced_is_proposed_when_it_is_not_and_at_once() -> None:
    """The controller would refuse it, and what it refused is not asked again for a while."""
    replicas = leader(state(1, 2))
    replicas.fetched(2, LOG, 0, 1)
    replicas.fetched(3, LOG, 0, 1)

    def wanted(now_ms: int, *fenced: int) -> tuple[int, ...] | None:
        heard = {2: now_ms, 3: now_ms}
        return replicas.proposal(now_ms, heard_ms=heard, lag_ms_max=LAG_MS, retry_ms=LAG_MS, fenced=fenced)

    assert wanted(10, 3) is None
    assert wanted(20, 2, 3) is None  # whoever is in sync is not the leader's to judge by that
    assert wanted(30) == (1, 2, 3)


def test_a_follower_joins_only_with_all_that_a_leader_before_may_have_committed() -> None:
    """The new leader's high watermark lags behind what its predecessor told its clients."""
    replicas = Replicas(1, state(1, 2), min_in_sync=2, now_ms=0)
    replicas.add_log(LOG, end=20, durable_end=20, high_watermark=12, now_ms=0)
    replicas.fetched(3, LOG, 15, 1)
    assert not replicas.may_join(3)
    replicas.fetched(3, LOG, 20, 2)
    assert replicas.may_join(3)


def test_a_replica_is_in_sync_in_all_logs_of_its_partition_or_not_at_all() -> None:
    replicas = leader(state(1, 2))
    replicas.add_log(LEDGER, end=5, durable_end=5, high_watermark=0, now_ms=0)
    replicas.fetched(3, LOG, 0, 1)
    assert not replicas.may_join(3)
    replicas.fetched(3, LEDGER, 5, 1)
    assert replicas.may_join(3)


def test_a_log_that_is_added_later_does_not_make_anybody_look_behind() -> None:
    """The first dead letter, or the first lease, makes a companion of a partition that is led for long. Nobody can have fetched from
    it before it was there."""
    replicas = leader(end=10)
    for number in (2, 3):
        replicas.fetched(number, LOG, 10, 1)
    added_ms = 50_000
    replicas.add_log(LEDGER, end=3, durable_end=3, high_watermark=0, now_ms=added_ms)
    soon_ms = added_ms + 1
    assert proposed(replicas, soon_ms, n2=soon_ms, n3=soon_ms) is None
    last_ms = added_ms + LAG_MS
    assert proposed(replicas, last_ms, n2=last_ms, n3=last_ms) is None
    replicas.fetched(2, LEDGER, 3, last_ms)  # the third has had its time
    late_ms = last_ms + 1
    assert proposed(replicas, late_ms, n2=late_ms, n3=late_ms) == (1, 2)


def test_a_leader_whose_disk_has_failed_wants_another_to_lead() -> None:
    replicas = leader()
    for number in (2, 3):
        replicas.fetched(number, LOG, 0, 1)
    heard = {2: 1, 3: 1}
    wanted = replicas.proposal(2, heard_ms=heard, lag_ms_max=LAG_MS, retry_ms=LAG_MS, resigns=True)
    assert wanted == (2, 3)


def test_a_leader_that_is_alone_in_sync_stays_whatever_its_disk_does() -> None:
    replicas = leader(state(1))
    assert replicas.proposal(1, heard_ms={}, lag_ms_max=LAG_MS, retry_ms=LAG_MS, resigns=True) is None


def test_before_all_logs_are_there_nobody_is_said_to_have_everything() -> None:
    """A leader that has just been named and has not begun yet knows nothing of anybody."""
    replicas = Replicas(1, state(1, 2), min_in_sync=2, now_ms=0)
    replicas.expect([LOG, LEDGER])
    assert proposed(replicas, 1, n2=1, n3=1) is None
    replicas.add_log(LOG, end=5, durable_end=5, high_watermark=5, now_ms=0)
    replicas.fetched(3, LOG, 5, 2)
    assert proposed(replicas, 3, n2=3, n3=3) is None
    assert not replicas.may_join(3)
    replicas.add_log(LEDGER, end=2, durable_end=2, high_watermark=0, now_ms=0)
    assert not replicas.may_join(3)
    replicas.fetched(3, LEDGER, 2, 4)
    assert replicas.may_join(3)
    assert proposed(replicas, 5, n2=5, n3=5) == (1, 2, 3)


def test_strangers_change_nothing() -> None:
    replicas = leader()
    append(replicas, LOG, 3)
    replicas.fetched(9, LOG, 3, 1)
    replicas.fetched(2, "another", 3, 1)
    assert replicas.high_watermark(LOG) == 0
    assert not replicas.may_join(9)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 5)),
            st.tuples(st.just("fetch"), st.tuples(st.sampled_from((2, 3)), st.integers(0, 5))),
            st.tuples(st.just("confirm"), st.none()),
            st.tuples(st.just("wait"), st.integers(1, 1_500)),
        ),
        max_size=60,
    )
)
@settings(max_examples=200, deadline=None)
def test_what_is_committed_is_on_enough_disks_and_on_all_in_sync(steps: list[tuple[str, object]]) -> None:
    """Against plain facts: what each follower really has on its disk, and what the controller has confirmed."""
    replicas = leader()
    disks, end, now_ms, wanted, heard = {2: 0, 3: 0}, 0, 0, None, {2: 0, 3: 0}
    watermark = 0
    for kind, value in steps:
        match kind, value:
            case "append", int(count):
                end += count
                append(replicas, LOG, end)
            case "fetch", (int(number), int(count)):
                disks[number] = min(disks[number] + count, end)
                heard[number] = now_ms
                replicas.fetched(number, LOG, disks[number], now_ms)
            case "wait", int(ms):
                now_ms += ms
                found = replicas.proposal(now_ms, heard_ms=heard, lag_ms_max=LAG_MS, retry_ms=LAG_MS)
                wanted = found or wanted
            case "confirm", _ if wanted is not None:
                replicas.update(
                    structs.replace(replicas.state, in_sync=wanted, epoch=replicas.state.epoch + 1),
                    min_in_sync=2,
                )
                wanted = None
            case _:
                continue
        before, watermark = watermark, replicas.high_watermark(LOG)
        assert watermark >= before
        if watermark > before:
            holders = [number for number in (2, 3) if disks[number] >= watermark]
            assert 1 + len(holders) >= 2
            assert all(disks[number] >= watermark for number in replicas.state.in_sync if number != 1)


# ---------------------------------------------------------------- deleted by request


def test_what_is_deleted_is_so_when_everybody_in_sync_begins_there() -> None:
    replicas = leader(end=10)
    replicas.deleted(LOG, 5)
    assert replicas.start(LOG) < 5
    replicas.fetched(2, LOG, 10, 1, log_start=5)
    assert replicas.start(LOG) < 5
    replicas.fetched(3, LOG, 10, 1, log_start=4)
    assert replicas.start(LOG) == 4
    replicas.fetched(3, LOG, 10, 2, log_start=7)
    assert replicas.start(LOG) == 5


def test_what_a_follower_said_in_another_session_does_not_count_for_what_is_deleted() -> None:
    replicas = leader(state(1, 2), end=10)
    replicas.deleted(LOG, 5)
    replicas.fetched(2, LOG, 10, 1, log_start=5)
    replicas.began_anew(2, 2)
    assert replicas.start(LOG) < 5


def test_nothing_is_deleted_for_good_while_somebody_may_lead_who_is_not_in_sync() -> None:
    replicas = leader(structs.replace(state(1), eligible=(2,)), end=10)
    replicas.deleted(LOG, 5)
    assert replicas.start(LOG) < 5


def test_nobody_joins_who_has_what_was_deleted() -> None:
    replicas = leader(state(1, 2), end=10)
    replicas.deleted(LOG, 5)
    replicas.fetched(3, LOG, 10, 1)
    assert not replicas.may_join(3)
    replicas.fetched(3, LOG, 10, 2, log_start=5)
    assert replicas.may_join(3)


def test_nobody_joins_who_has_what_the_leader_before_may_have_deleted() -> None:
    replicas = Replicas(1, state(1, 2), min_in_sync=2, now_ms=0)
    replicas.add_log(LOG, end=10, durable_end=10, high_watermark=0, now_ms=0, start=5)
    replicas.fetched(3, LOG, 10, 1, log_start=4)
    assert not replicas.may_join(3)


def test_the_follower_furthest_behind_says_how_long_ago_all_was_everywhere() -> None:
    replicas = leader(end=5)
    heard = {2: 40, 3: 60}
    assert replicas.lag_ms(50, heard) == 50, "nobody has said anything since it leads"
    replicas.fetched(2, LOG, 5, 40)
    replicas.fetched(3, LOG, 5, 60)
    assert replicas.lag_ms(70, heard) == 30, "a quiet one has everything for as long as it is heard of"
    append(replicas, LOG, 9)
    replicas.fetched(3, LOG, 9, 80)
    assert replicas.lag_ms(90, {2: 85, 3: 85}) == 50, "it was last seen with everything at 40"
    replicas.fetched(2, LOG, 9, 95)
    assert replicas.lag_ms(100, {2: 95, 3: 100}) == 5


def test_where_nobody_follows_nobody_lags() -> None:
    assert leader(state(1, replicas=(1,)), end=5).lag_ms(1_000, {}) == 0
