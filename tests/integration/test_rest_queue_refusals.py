"""Bad input to the queue over REST on a real broker: each is refused by its own code, and nothing changes.

What an answer has to say is here for each kind once; the finer points are in `tests/unit/api/http`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.support.broker import Broker
from tests.support.kafka_clients import new_name, until
from tests.support.rest_queue import Answer, Json, Worker, call, create, publish

GROUP = "workers"
ACTIONS: dict[str, dict[str, Json]] = {
    "ack": {},
    "nack": {},
    "reject": {"reason": "no"},
    "visibility": {"timeout": "1m"},
}
every_action = pytest.mark.parametrize("action", ACTIONS)


class Held(NamedTuple):
    """A topic with messages, one of which a member holds."""

    broker: Broker
    topic: str
    holder: Worker
    message: Json


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("refusals")) as running:
        yield running


@pytest.fixture
def held(served: Broker) -> Iterator[Held]:
    """At the end the holder can still ack: a refusal took nothing away from it."""
    topic = new_name()
    create(served, topic, retry_backoff_ms=10, retry_backoff_max_ms=10)
    publish(served, {"value": "a"}, {"value": "b"}, topic=topic)
    holder = Worker(served, group_of(topic), "anna", [topic])
    (message,) = holder.poll_all(1)
    yield Held(served, topic, holder, message)
    assert holder.finish("ack", message).status == 200
    assert call(served, "DELETE", f"/topics/{topic}").status in (200, 204)


def group_of(topic: str) -> str:
    return f"{GROUP}-{topic}"


def state(held: Held) -> list[Json]:
    """All that a refused request could have changed."""
    topic = held.topic
    return [
        call(held.broker, "GET", f"/topics/{topic}/partitions/0/messages").body["messages"],
        call(held.broker, "GET", f"/topics/{topic}/delayed").body["count"],
        call(held.broker, "GET", f"/reliability/stats?group={group_of(topic)}").body["groups"],
        call(held.broker, "GET", f"/groups/{group_of(topic)}").body["members"],
    ]


def stable(facts: list[Json]) -> list[Json]:
    """Without when a member was last heard of."""
    *rest, members = facts
    return [*rest, [{name: one[name] for name in one if name != "last_heartbeat"} for one in members]]


def refuses(answer: Answer, status: int, code: str, *words: str) -> None:
    body = answer.body
    assert (answer.status, body["code"], body["status"]) == (status, code, status), body
    for word in words:
        assert word in body["error"], body


@every_action
@pytest.mark.parametrize(
    "forgery", ["nonsense", "of another offset", "of another delivery", "with another seal"]
)
def test_an_unknown_or_forged_receipt(held: Held, action: str, forgery: str) -> None:
    topic, partition, offset, count, seal = held.message["receipt_handle"].split(":")
    receipt = {
        "nonsense": "nonsense",
        "of another offset": ":".join((topic, partition, "1", count, seal)),
        "of another delivery": ":".join((topic, partition, offset, "2", seal)),
        "with another seal": ":".join(
            (topic, partition, offset, count, seal[:-1] + ("0" if seal[-1] != "0" else "1"))
        ),
    }[forgery]
    before = state(held)
    answer = held.holder.finish(action, {"receipt_handle": receipt}, **ACTIONS[action])
    refuses(
        answer, 404, "RECEIPT_NOT_FOUND", repr(receipt), "use the receipt_handle that came with the message"
    )
    assert stable(state(held)) == stable(before)


@every_action
def test_an_expired_receipt_and_one_that_another_has_now(held: Held, action: str) -> None:
    anna, bert = held.holder, Worker(held.broker, group_of(held.topic), "bert", [held.topic])
    (old,) = anna.poll_all(1, visibility="100ms")
    until(lambda: in_flight(held) == 1, "the lease is over")
    refuses(
        anna.finish(action, old, **ACTIONS[action]), 409, "LEASE_EXPIRED", "offset 1 is over", "given again"
    )
    (new,) = bert.poll_all(1)
    assert (new["offset"], new["delivery_count"]) == (1, 2)
    before = state(held)
    refuses(
        anna.finish(action, old, **ACTIONS[action]),
        409,
        "LEASE_SUPERSEDED",
        "delivery 2, not 1",
        "only who was given it last",
    )
    assert stable(state(held)) == stable(before)
    assert bert.finish("ack", new).status == 200


def in_flight(held: Held) -> int:
    stats = call(held.broker, "GET", f"/reliability/stats?group={group_of(held.topic)}")
    return int(stats.body["groups"][0]["in_flight"])


@every_action
def test_a_message_that_was_acknowledged_before(held: Held, action: str) -> None:
    (done,) = held.holder.poll_all(1)
    assert held.holder.finish("ack", done).status == 200
    before = state(held)
    refuses(
        held.holder.finish(action, done, **ACTIONS[action]),
        409,
        "MESSAGE_SETTLED",
        "finished offset 1 already",
    )
    assert stable(state(held)) == stable(before)


@pytest.mark.parametrize(
    ("action", "more", "code", "words"),
    [
        ("visibility", {"timeout": "13h"}, "INVALID_VISIBILITY", ("46800000", "0 to 43200000")),
        ("visibility", {"timeout": 43_200_001}, "INVALID_VISIBILITY", ("43200001", "0 to 43200000")),
        ("visibility", {"timeout": -1}, "INVALID_VISIBILITY", ("-1", "0 to 43200000")),
        ("visibility", {"timeout": "-1s"}, "INVALID_REQUEST", ("'-1s'", "write 250ms")),
        ("visibility", {"extension_seconds": -1}, "INVALID_REQUEST", ("extension_seconds", ">= 0")),
        ("visibility", {"extension_seconds": 43_201}, "INVALID_REQUEST", ("extension_seconds", "<= 43200")),
        ("nack", {"delay": "13h"}, "INVALID_REQUEST", ("46800000", "0 to 43200000")),
        ("nack", {"delay": -1}, "INVALID_REQUEST", ("-1", "0 to 43200000")),
        ("nack", {"delay": "soon"}, "INVALID_REQUEST", ("'soon'", "write 250ms")),
        ("nack", {"delay": "999999999999d"}, "INVALID_REQUEST", ("999999999999d", "longest duration")),
    ],
)
def test_a_visibility_or_delay_that_cannot_be(
    held: Held, action: str, more: dict[str, Json], code: str, words: tuple[str, ...]
) -> None:
    before = state(held)
    refuses(held.holder.finish(action, held.message, **more), 400, code, *words)
    assert stable(state(held)) == stable(before)


@pytest.mark.parametrize(
    ("query", "status", "code", "words"),
    [
        ("member_id=nobody", 404, "UNKNOWN_MEMBER", ("'nobody'", "join again")),
        ("member_id=anna&generation=99", 409, "FENCED_MEMBER_EPOCH", ("'anna'", "not 99", "join again")),
        ("", 400, "INVALID_REQUEST", ("the query string", "`member_id`")),
        ("member_id=anna&visibility=13h", 400, "INVALID_VISIBILITY", ("46800000", "1 to 43200000")),
        ("member_id=anna&visibility=0", 400, "INVALID_VISIBILITY", ("of 0 ms", "1 to 43200000")),
        ("member_id=anna&visibility=-1s", 400, "INVALID_REQUEST", ("'-1s'", "write 250ms")),
        ("member_id=anna&limit=0", 400, "INVALID_REQUEST", ("'limit'", ">= 1")),
    ],
)
def test_a_poll_by_who_may_not_or_for_what_cannot_be(
    held: Held, query: str, status: int, code: str, words: tuple[str, ...]
) -> None:
    before = state(held)
    answer = call(held.broker, "GET", f"/groups/{group_of(held.topic)}/poll?{query}&timeout=0")
    refuses(answer, status, code, *words)
    assert stable(state(held)) == stable(before)


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"delay": "367d"}, "INVALID_DELAY", ("too long", "31622400000")),
        ({"delay": "soon"}, "INVALID_DELAY", ("'soon'", "write 250ms")),
        ({"delay": -1}, "INVALID_DELAY", ("-1", "0 or more")),
        ({"deliverAt": "tomorrow"}, "INVALID_DELAY", ("'tomorrow'", "RFC 3339")),
        ({"deliverAt": "2999-01-01T00:00:00Z"}, "INVALID_DELAY", ("too long", "31622400000")),
        ({"headers": {"gq-deliver-at": "x"}}, "INVALID_DELAY", ("'x'", "RFC 3339")),
        ({"priority": 5}, "INVALID_PRIORITY", ("5", "0 to 4", "critical")),
        ({"priority": -1}, "INVALID_PRIORITY", ("-1", "0 to 4")),
        ({"priority": "urgent"}, "INVALID_PRIORITY", ("'urgent'", "critical")),
        ({"headers": {"gq-priority": "9"}}, "INVALID_PRIORITY", ("'9'", "0 to 4")),
    ],
)
def test_a_message_with_a_wrong_delay_or_priority(
    held: Held, fields: dict[str, Json], code: str, words: tuple[str, ...]
) -> None:
    before = state(held)
    body = {"messages": [{"value": "x", **fields}]}
    answer = call(held.broker, "POST", f"/topics/{held.topic}/messages", body)
    refuses(answer, 400, code, *words)
    assert stable(state(held)) == stable(before)


def test_a_cancel_of_what_was_delivered_cancelled_or_never_there(held: Held) -> None:
    fired, kept, cancelled = publish(
        held.broker,
        {"value": "fired", "delay": "50ms"},
        *[{"value": "x", "delay": "1h"}] * 2,
        topic=held.topic,
    )
    delayed = f"/topics/{held.topic}/delayed"
    assert call(held.broker, "DELETE", f"{delayed}/0/{cancelled['offset']}").status == 200
    until(lambda: len(state(held)[0]) == 3, "the first is delivered")
    before = state(held)
    for place, status, code, words in (
        (f"0/{fired['offset']}", 409, "SCHEDULE_FIRED", "delivered already"),
        (f"0/{cancelled['offset']}", 404, "SCHEDULE_NOT_FOUND", "cancelled already"),
        ("0/999", 404, "SCHEDULE_NOT_FOUND", "999"),
        ("7/0", 404, "PARTITION_NOT_FOUND", "no partition 7; it has partitions 0 to 0"),
        ("0/-1", 400, "INVALID_REQUEST", "'-1' is not a whole number"),
    ):
        refuses(call(held.broker, "DELETE", f"{delayed}/{place}"), status, code, words)
    assert stable(state(held)) == stable(before)
    assert call(held.broker, "GET", f"{delayed}/0/{kept['offset']}").status == 200


def test_a_redrive_into_itself_into_dead_letters_or_to_nowhere(held: Held) -> None:
    (bad,) = held.holder.poll_all(1)
    assert held.holder.finish("reject", bad, reason="bad").status == 200
    letters = f"{held.topic}.dlq"
    until(lambda: messages_in(held.broker, letters) == 1, "the letter has arrived")
    before = state(held)
    for source, to, status, code, words in (
        (letters, letters, 400, "INVALID_REQUEST", "into itself; name another in `to`"),
        (held.topic, letters, 400, "INVALID_REQUEST", "takes dead letters"),
        (letters, "nowhere", 404, "TOPIC_NOT_FOUND", "'nowhere' does not exist"),
        (letters, "../x", 400, "INVALID_NAME", "'../x'"),
    ):
        refuses(call(held.broker, "POST", f"/topics/{source}/redrive", {"to": to}), status, code, words)
    assert stable(state(held)) == stable(before)
    redriven = call(held.broker, "POST", f"/topics/{letters}/redrive", {})
    assert (redriven.status, redriven.body["moved"]) == (200, 1)


def messages_in(broker: Broker, topic: str) -> int:
    answer = call(broker, "GET", f"/topics/{topic}")
    return 0 if answer.status == 404 else int(answer.body["total_messages"])
