"""Share sessions: their epochs, their limits, and what becomes of a member's records when one ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.kafka_calls import Kafka, with_kafka
from tests.support.kafka_sockets import LOOPS, answer_of, leave, listening, next_id, request, run_on, texts
from tests.support.nodes import create, publish
from tests.support.share_calls import ACCEPT, RELEASE, Got, Said, ShareMember

from goqueue.api.kafka import share_sessions
from goqueue.api.kafka.call import Answer, Call, Closing
from goqueue.api.kafka.share_sessions import CLOSING_EPOCH, Member, ShareSessions
from goqueue.model.errors import InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound
from goqueue.node.node import Node
from goqueue.node.queue.share_requests import ShareFetch

SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, INVALID_REQUEST = 122, 123, 42
TOPIC = bytes(15) + b"\1"


def nobody(member: Member) -> None:
    raise AssertionError(f"{member} was lost")


# -------------------------------------------------------------------- the table


def test_a_session_remembers_what_its_member_reads_and_moves_on_by_one() -> None:
    sessions, member = ShareSessions(nobody), Member("g", "m")
    sessions.open(member, [(TOPIC, 0), (TOPIC, 1)], Closing())
    session = sessions.advance(member, 1, [(TOPIC, 2)], [(TOPIC, 0)])
    assert list(session.spots) == [(TOPIC, 1), (TOPIC, 2)]
    session.served((TOPIC, 1))
    assert list(sessions.advance(member, 2).spots) == [(TOPIC, 2), (TOPIC, 1)]
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.advance(member, 2)
    session.epoch = 2**31 - 1
    assert sessions.advance(member, 2**31 - 1).epoch == 1
    assert sessions.close(member)
    assert not sessions.close(member)
    with pytest.raises(ShareSessionNotFound):
        sessions.advance(member, 1)


def test_a_session_ends_with_its_connection_but_not_with_one_before_it() -> None:
    lost: list[Member] = []
    sessions, member = ShareSessions(lost.append), Member("g", "m")
    before, now = Closing(), Closing()
    sessions.open(member, [(TOPIC, 0)], before)
    sessions.open(member, [(TOPIC, 0)], now)
    before.run()
    assert lost == []
    assert sessions.find(member, CLOSING_EPOCH).closing is now
    now.run()
    assert lost == [member]
    with pytest.raises(ShareSessionNotFound):
        sessions.find(member, CLOSING_EPOCH)


def test_a_session_that_was_closed_has_nothing_to_do_with_its_connection_any_more() -> None:
    sessions, member, closing = ShareSessions(nobody), Member("g", "m"), Closing()
    sessions.open(member, [(TOPIC, 0)], closing)
    sessions.close(member)
    closing.run()


def test_there_is_room_for_so_many_sessions_and_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_sessions, "SESSION_COUNT_MAX", 2)
    monkeypatch.setattr(share_sessions, "PARTITION_COUNT_MAX", 3)
    sessions, closing = ShareSessions(nobody), Closing()
    sessions.open(Member("g", "a"), [(TOPIC, 0), (TOPIC, 1)], closing)
    with pytest.raises(ShareSessionLimitReached):
        sessions.open(Member("g", "b"), [(TOPIC, 0), (TOPIC, 1)], closing)
    sessions.open(Member("g", "b"), [(TOPIC, 0)], closing)
    with pytest.raises(ShareSessionLimitReached):
        sessions.open(Member("g", "c"), [], closing)
    with pytest.raises(ShareSessionLimitReached):
        sessions.advance(Member("g", "b"), 1, [(TOPIC, 1)])
    assert sessions.find(Member("g", "b"), 1).epoch == 1
    sessions.open(Member("g", "a"), [], closing)
    sessions.advance(Member("g", "b"), 1, [(TOPIC, 1), (TOPIC, 2)])


@pytest.mark.parametrize("loop", LOOPS)
def test_what_was_left_for_the_end_of_a_connection_is_done_then(loop: str) -> None:
    async def main() -> None:
        done = asyncio.Event()

        async def handle(call: Call, request: Any) -> Answer:
            call.closing.add("step", done.set)
            return answer_of("ok")

        async with listening(delete_groups=handle) as listener:
            streams = await listener.connect()
            for id in (1, 2):
                streams[1].write(request("delete_groups", id, texts("g")))
                assert await next_id(streams) == id
            assert not done.is_set()
            await leave(streams)
            await done.wait()

    run_on(loop, main())


# -------------------------------------------------------------------- as members see them


async def two(kafka: Kafka, node: Node, *values: bytes) -> tuple[ShareMember, ShareMember]:
    """Members of a group that reads a topic with these records from the beginning."""
    await create(node)
    await node.groups.configure("g", {"share.auto.offset.reset": "earliest"})
    await publish(node, *values)
    members = ShareMember(kafka, node, member="one"), ShareMember(kafka, node, member="two")
    for member in members:
        await member.join()
    return members


def test_requests_out_of_step_are_refused() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one, _ = await two(kafka, node, b"a")
        assert (await one.ask(epoch=1)).error_code == SHARE_SESSION_NOT_FOUND
        assert (await one.ask(epoch=-1)).error_code == SHARE_SESSION_NOT_FOUND
        assert (await one.say(epoch=1)).error_code == SHARE_SESSION_NOT_FOUND
        assert (await one.say(epoch=-1)).error_code == SHARE_SESSION_NOT_FOUND
        await one.open()
        assert (await one.ask(epoch=2)).error_code == INVALID_SHARE_SESSION_EPOCH
        assert (await one.ask(epoch=-2)).error_code == INVALID_SHARE_SESSION_EPOCH
        assert (await one.say(Said(0, 0, [ACCEPT]), epoch=2)).error_code == INVALID_SHARE_SESSION_EPOCH
        assert (await one.say(Said(0, 0, [ACCEPT]), epoch=0)).error_code == INVALID_SHARE_SESSION_EPOCH
        assert (await one.ask(Said(0, 0, [ACCEPT]), epoch=0)).error_code == INVALID_REQUEST
        assert await one.codes(Said(0, 0, [ACCEPT])) == [0]

    with_kafka(main)


def test_the_end_of_a_session_takes_last_words_and_gives_the_rest_back() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one, other = await two(kafka, node, b"a", b"b")
        await one.open()
        await other.open()
        assert (await one.ask(Said(0, 0, [ACCEPT]), epoch=-1)).error_code == 0
        assert await other.fetch() == [Got(0, 1, b"b", 2)]
        assert await other.codes(Said(1, 1, [RELEASE]), epoch=-1) == [0]
        assert await one.open() == [Got(0, 1, b"b", 3)]
        assert node.queue.committed("g", "orders", 0) == 1

    with_kafka(main)


def test_a_session_that_is_opened_anew_gives_back_what_the_member_had() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one, _ = await two(kafka, node, b"a")
        assert await one.open() == [Got(0, 0, b"a", 1)]
        assert await one.open() == [Got(0, 0, b"a", 2)]

    with_kafka(main)


def test_a_lost_connection_gives_back_what_the_member_had() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one, other = await two(kafka, node, b"a")
        await one.open()
        waiting = asyncio.create_task(other.open(wait_ms=10_000))
        await asyncio.sleep(0.1)
        one.closing.run()
        assert await waiting == [Got(0, 0, b"a", 2)]

    with_kafka(main)


def test_the_last_words_of_a_member_that_has_left_count_while_its_session_is_open() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one, other = await two(kafka, node, b"a", b"b")
        await one.open()
        await one.leave()
        await asyncio.sleep(1)
        assert await one.codes(Said(0, 0, [ACCEPT]), epoch=-1) == [0]
        assert await other.open() == [Got(0, 1, b"b", 2)]

    with_kafka(main)


def test_a_member_that_left_without_a_session_holds_nothing() -> None:
    async def main(kafka: Kafka, node: Node) -> None:
        one, other = await two(kafka, node, b"a")
        await node.share.fetch(ShareFetch("g", "one", [("orders", 0)], {}, 1, 1_000, 0))
        await one.leave()
        assert await other.open(wait_ms=1_000) == [Got(0, 0, b"a", 2)]

    with_kafka(main)
