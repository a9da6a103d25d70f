"""How fast a node copies what is moved to it."""

from __future__ import annotations

import pytest

from goqueue.node.replication.throttle import MoveThrottle

USUAL = 1024 * 1024


def throttle(limits: dict[str, int | None]) -> MoveThrottle:
    return MoveThrottle(lambda topic, _: limits.get(topic))


def copied_in(one: MoveThrottle, seconds: float, size_bytes: int) -> int:
    """As a follower does: ask when it may, take what comes, ask again."""
    now, copied = 0.0, 0
    while now < seconds:
        until = one.until("t", 0, now)
        if until > now:
            now = until
            continue
        copied += size_bytes
        one.took("t", 0, size_bytes, now)
        now += 0.001
    return copied


@pytest.mark.parametrize("size_bytes", [1_000, 50_000, 1_000_000])
def test_no_more_is_copied_than_is_allowed(size_bytes: int) -> None:
    limit = 200_000
    copied = copied_in(throttle({"t": limit}), 20.0, size_bytes)
    burst = limit // 2 + size_bytes
    assert 20 * limit - size_bytes <= copied <= 20 * limit + burst


def test_small_fetches_of_a_replica_that_keeps_up_never_wait() -> None:
    one = throttle({"t": 100_000})
    for turn in range(1_000):
        now = turn * 0.01
        assert one.until("t", 0, now) == now
        one.took("t", 0, 500, now)


def test_a_paused_plan_copies_nothing() -> None:
    limits: dict[str, int | None] = {"t": 0}
    one = throttle(limits)
    assert one.until("t", 0, 5.0) > 5.0
    limits["t"] = 1_000
    assert one.until("t", 0, 5.1) == 5.1


def test_what_is_not_moved_is_not_counted_and_never_waits() -> None:
    one = throttle({"t": 1_000})
    one.took("in sync", 0, 10_000_000, 0.0)
    assert one.until("t", 0, 0.0) == 0.0
    one.took("t", 0, 10_000_000, 0.0)
    assert one.until("in sync", 0, 0.0) == 0.0
    assert one.until("t", 1, 0.0) > 0.0


def test_a_debt_is_not_waited_for_in_one_piece() -> None:
    """The limit may change meanwhile."""
    limits: dict[str, int | None] = {"t": 1}
    one = throttle(limits)
    one.took("t", 0, 1_000_000, 0.0)
    assert one.until("t", 0, 0.0) <= 0.25
    limits["t"] = 10_000_000
    assert one.until("t", 0, 0.25) == 0.25


def test_what_is_throttled_is_fetched_in_small_parts() -> None:
    one = throttle({"t": 400_000, "u": 1, "w": 10**12})
    assert [one.bytes_max(topic, 0, USUAL) for topic in "tuvw"] == [100_000, 16 * 1024, USUAL, USUAL]
