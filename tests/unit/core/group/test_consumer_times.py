"""Sessions that members choose themselves, and the times that can be seen of them."""

from __future__ import annotations

import msgspec
import pytest

from goqueue.core.group.config import GroupConfig
from goqueue.core.group.consumer import ConsumerGroup
from goqueue.core.group.consumer_events import (
    ConsumerEvent,
    ConsumerHeartbeat,
    ConsumerMemberFacts,
    decode_consumer_event,
    encode_consumer_event,
)
from goqueue.model.errors import InvalidSessionTimeout

CONFIG = GroupConfig(session_ms_min=1_000, session_ms_max=60_000)


class OneTopic:
    def partition_count(self, name: str) -> int | None:
        return 2 if name == "orders" else None

    def names(self) -> list[str]:
        return ["orders"]


def new_group() -> ConsumerGroup:
    return ConsumerGroup("g", CONFIG, OneTopic())


def beat(
    group: ConsumerGroup, member_id: str, now_ms: int, epoch: int = 0, **more: int
) -> list[ConsumerEvent]:
    joins = epoch == 0
    events, _ = group.heartbeat(
        ConsumerHeartbeat(
            "g",
            member_id,
            epoch,
            "",
            rebalance_timeout_ms=5_000 if joins else -1,
            subscribed_topics=("orders",) if joins else None,
            owned=() if joins else None,
            session_timeout_ms=more.get("session_timeout_ms"),
        ),
        now_ms,
    )
    for event in events:
        group.apply(event)
    return events


def seen(group: ConsumerGroup, member_id: str) -> ConsumerMemberFacts:
    facts = group.member_now(member_id)
    assert facts is not None
    return facts


def test_a_member_has_the_session_it_asks_for_until_it_is_silent_for_that_long() -> None:
    group = new_group()
    beat(group, "m", 10_000, session_timeout_ms=2_000)
    assert seen(group, "m").heard_ms == 10_000
    beat(group, "m", 11_000, epoch=1)
    assert seen(group, "m").heard_ms == 11_000
    assert group.next_tick_ms() == 13_000
    assert group.tick(12_999) == []
    for event in group.tick(13_000):
        group.apply(event)
    assert group.is_empty


def test_who_asks_for_no_session_has_the_brokers() -> None:
    group = new_group()
    beat(group, "m", 0)
    assert group.next_tick_ms() == CONFIG.consumer_session_ms


@pytest.mark.parametrize("session_ms", [0, 999, 60_001])
def test_a_session_out_of_bounds_is_refused(session_ms: int) -> None:
    group = new_group()
    with pytest.raises(InvalidSessionTimeout):
        beat(group, "m", 0, session_timeout_ms=session_ms)
    assert group.is_empty


def test_the_session_survives_in_the_log() -> None:
    group, again = new_group(), new_group()
    for event in beat(group, "m", 0, session_timeout_ms=2_000):
        key, value = encode_consumer_event(event)
        again.apply(decode_consumer_event(_json(key), value))
    again.resume(50_000)
    assert again.describe() == group.describe()
    assert again.next_tick_ms() == 52_000


def test_a_member_that_was_stored_before_sessions_were_has_the_brokers() -> None:
    event = decode_consumer_event(
        ["member", "g", "m"],
        b'{"group_id":"g","member_id":"m","instance_id":null,"rack_id":null,"client_id":"","client_host":"",'
        b'"rebalance_timeout_ms":1,"topics":["orders"],"regex":null,"assignor":null}',
    )
    group = new_group()
    group.apply(event)
    group.resume(0)
    assert group.next_tick_ms() == CONFIG.consumer_session_ms


def test_the_time_to_give_up_partitions_can_be_seen_while_it_runs() -> None:
    group = new_group()
    beat(group, "a", 0)
    assert seen(group, "a").revocation_ms is None
    beat(group, "b", 1_000)
    beat(group, "a", 2_000, epoch=1)
    assert seen(group, "a").revocation_ms == 7_000
    described = {one.member_id: one for one in group.describe_now().members}
    assert described["a"].revocation_ms == 7_000
    assert described["b"].heard_ms == 1_000


def test_who_is_no_member_is_not_seen() -> None:
    assert new_group().member_now("m") is None


def _json(key: bytes) -> list[object]:
    return msgspec.json.decode(key, type=list[object])
