"""The queue over REST on a real broker: the traps of the specification that a client can fall into."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from tests.support.broker import Broker
from tests.support.rest_queue import Json, Worker, call, create, publish

QUICK: dict[str, Json] = {"retry_backoff_ms": 20, "retry_backoff_max_ms": 50}


def values(messages: list[Json]) -> list[str]:
    return [message["value"] for message in messages]


def memory_bytes(broker: Broker) -> int:
    status = Path(f"/proc/{broker.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def undertaker(broker: Broker) -> Worker:
    """Who reads the dead letters. The first of them makes their topic."""
    deadline = time.monotonic() + 60
    while call(broker, "GET", "/topics/tasks.dlq").status == 404:
        assert time.monotonic() < deadline, "nobody has made a topic for dead letters"
    return Worker(broker, "undertakers", topics=["tasks.dlq"])


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_trap_1_interleaved_priorities_are_all_delivered(broker: Broker, limit: int) -> None:
    priorities = [2, 2, 0, 4, 2, 1, 2, 2]
    create(broker)
    publish(broker, *[{"value": str(at), "priority": one} for at, one in enumerate(priorities)])
    worker = Worker(broker)
    messages: list[Json] = []
    while more := worker.poll(limit, timeout="1s"):
        messages += more
    assert sorted(message["offset"] for message in messages) == list(range(8))
    assert {message["offset"]: message["priority"] for message in messages} == dict(enumerate(priorities))
    assert messages[0]["offset"] == 2
    assert worker.ack(messages)[-1]["committed_offset"] == 8
    read = call(broker, "GET", "/topics/tasks/partitions/0/messages").body["messages"]
    assert [message["priority"] for message in read] == priorities  # plain readers see the log as it is


def test_trap_2_a_delayed_message_reaches_a_consumer_that_has_read_past_it(broker: Broker) -> None:
    create(broker)
    publish(broker, {"value": "delayed", "delay": "1s"}, {"value": "at once"})
    worker = Worker(broker)
    first = worker.poll_all(1)
    assert values(first) == ["at once"]
    assert worker.ack(first)[0]["committed_offset"] == 1
    assert values(worker.poll_all(1)) == ["delayed"]


def test_trap_5_a_backlog_of_mixed_priorities_costs_no_memory(broker: Broker) -> None:
    create(broker)
    text = "x" * 4_000
    for _ in range(20):
        publish(broker, *[{"value": text, "priority": (2, 2, 3, 4)[at % 4]} for at in range(1_000)])
    publish(broker, {"value": "urgent", "priority": "critical"})
    worker = Worker(broker)
    before = memory_bytes(broker)
    served_count, last = 0, ""
    while last != "urgent":  # it is at the end of the log, which nobody has looked at before
        messages = worker.poll(10)
        worker.ack(messages)
        served_count += len(messages)
        last = messages[0]["value"]
        assert served_count < 5_000
    lanes = call(broker, "GET", "/priority/stats?group=workers").body["groups"][0]["lanes"]
    assert [lane["in_flight"] for lane in lanes] == [0] * 5
    assert sum(lane["ready"] for lane in lanes) == 20_001 - served_count
    assert memory_bytes(broker) - before < 24 * 1024 * 1024  # of 80 MB, of which 40 are in the normal lane


def test_trap_11_an_ack_survives_kill_9(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        create(broker, **QUICK)
        publish(broker, *[{"value": str(at)} for at in range(10)])
        worker = Worker(broker)
        messages = worker.poll_all(10, visibility="10m")
        worker.ack(messages[::2])
        for message in messages[1::2]:
            assert worker.finish("visibility", message, timeout="3s").status == 200
        broker.kill9()
    with Broker(tmp_path / "data") as broker:
        worker = Worker(broker)
        again = worker.poll_all(5)
        assert sorted(values(again)) == ["1", "3", "5", "7", "9"]
        assert {message["delivery_count"] for message in again} == {2}  # counts survive, too
        settled = worker.finish("ack", messages[0])
        assert (settled.status, settled.body["code"]) == (409, "MESSAGE_SETTLED")
        late = worker.finish("ack", messages[1])
        assert (late.status, late.body["code"]) == (409, "LEASE_SUPERSEDED")
        assert worker.ack(again)[-1]["committed_offset"] == 10
        assert worker.poll(timeout="100ms") == []


def test_trap_12_two_groups_both_get_every_message(broker: Broker) -> None:
    create(broker, partitions=3)
    publish(broker, *[{"value": str(at), "key": str(at)} for at in range(30)])
    everything = {str(at) for at in range(30)}
    one, other = Worker(broker, "one"), Worker(broker, "other")
    first = one.poll_all(30)
    assert set(values(first)) == everything
    one.ack(first)
    assert set(values(other.poll_all(30))) == everything
    assert one.poll(timeout="100ms") == []


@pytest.mark.parametrize("failure", ["nack", "expiry"])
def test_trap_13_a_retry_is_a_redelivery_and_only_then_comes_the_dead_letter(
    broker: Broker, failure: str
) -> None:
    create(broker, max_retries=2, **QUICK)
    publish(broker, {"value": "bad", "key": "k", "headers": {"color": "red"}})
    worker = Worker(broker)
    for count in (1, 2, 3):
        (message,) = worker.poll_all(1, visibility="300ms" if failure == "expiry" else None)
        assert (message["value"], message["delivery_count"]) == ("bad", count)
        if failure == "nack":
            answer = worker.finish("nack", message, reason=f"failure {count}").body
            assert answer["action"] == ("retry" if count < 3 else "dead_letter")
            assert answer["delivery_count"] == count
    (letter,) = undertaker(broker).poll_all(1)
    assert (letter["value"], letter["key"], letter["headers"]["color"]) == ("bad", "k", "red")
    assert letter["headers"]["gq-dlq-attempts"] == "3"
    assert letter["headers"]["gq-dlq-reason"] == "retries exhausted"
    assert worker.poll(timeout="100ms") == []
    assert call(broker, "GET", "/reliability/stats?group=workers").body["groups"][0]["dead"] == 1


def test_trap_14_one_message_that_takes_minutes_does_not_stop_its_partition(broker: Broker) -> None:
    create(broker)
    publish(broker, *[{"value": str(at)} for at in range(2_000)])
    slow, quick = Worker(broker, name="slow"), Worker(broker, name="quick")
    (held,) = slow.poll_all(1)
    assert slow.finish("visibility", held, timeout="10m").status == 200
    rest = quick.poll_all(1_000)
    assert quick.ack(rest)[-1]["committed_offset"] == held["offset"] == 0
    rest = quick.poll_all(999)
    quick.ack(rest)
    publish(broker, {"value": "new"})
    new = quick.poll_all(1)
    assert values(new) == ["new"]
    assert quick.ack(new)[0]["committed_offset"] == 0
    done = slow.finish("ack", held).body
    assert (done["committed_offset"], done["in_flight_count"]) == (2_001, 0)


def test_trap_15_a_rejected_message_does_not_hold_the_committed_offset_back(broker: Broker) -> None:
    create(broker)
    publish(broker, {"value": "bad"}, {"value": "good"})
    worker = Worker(broker)
    bad, good = worker.poll_all(2)
    assert worker.ack([good])[0]["committed_offset"] == 0
    assert worker.finish("reject", bad, reason="not JSON").body["committed_offset"] == 2
    place = call(broker, "GET", "/reliability/stats").body["groups"][0]
    assert (place["committed_offset"], place["lag"], place["dead"]) == (2, 0, 1)
    again = worker.finish("nack", bad)
    assert (again.status, again.body["code"]) == (409, "MESSAGE_SETTLED")


def half_cancelled(broker: Broker, delay_s: int) -> list[tuple[int, int]]:
    """The places of four delayed messages, of which the first two are cancelled; none if they were due before that."""
    topic, begun_s = f"tasks-{delay_s}", time.time()
    create(broker, topic, partitions=2)
    results = publish(
        broker,
        *[
            {"value": f"{value} {partition}", "partition": partition, "delay": f"{delay_s}s"}
            for value in ("cancelled", "kept")
            for partition in (0, 1)
        ],
        topic=topic,
    )
    places = [(one["partition"], one["offset"]) for one in results]
    assert len(set(places)) == 4
    assert places[0][1] == places[1][1]  # the same offset in two partitions
    gone = [
        call(broker, "DELETE", f"/topics/{topic}/delayed/{at}/{offset}").status for at, offset in places[:2]
    ]
    assert gone == [200, 200] or time.time() >= begun_s + delay_s
    return places if gone == [200, 200] else []


def test_trap_19_delays_of_two_partitions_do_not_collide_survive_kill_9_and_stay_cancelled(
    tmp_path: Path,
) -> None:
    with Broker(tmp_path / "data") as broker:
        # Again with more time only where the machine was busy otherwise.
        attempts = ((f"tasks-{delay_s}", half_cancelled(broker, delay_s)) for delay_s in (3, 20, 80))
        topic, places = next((topic, places) for topic, places in attempts if places)
        broker.kill9()
    with Broker(tmp_path / "data") as broker:
        listed = call(broker, "GET", f"/topics/{topic}/delayed").body["messages"]
        assert {(one["partition"], one["offset"]) for one in listed} <= set(places[2:])
        worker = Worker(broker, topics=[topic])
        messages = worker.poll_all(2)
        assert sorted(values(messages)) == ["kept 0", "kept 1"]
        worker.ack(messages)
        assert worker.poll(timeout="500ms") == []
        (partition, offset) = places[2]
        fired = call(broker, "DELETE", f"/topics/{topic}/delayed/{partition}/{offset}")
        assert (fired.status, fired.body["code"]) == (409, "SCHEDULE_FIRED")


def test_a_message_walks_from_delay_to_dead_letter_and_back(broker: Broker) -> None:
    create(broker, max_retries=1, **QUICK)
    (result,) = publish(broker, {"value": "work", "delay": "300ms", "priority": "high"})
    assert (result["delayed"], result["priority"]) == (True, 1)
    worker = Worker(broker)
    for action in ("retry", "dead_letter"):
        (message,) = worker.poll_all(1)
        assert (message["value"], message["priority"]) == ("work", 1)
        assert worker.finish("nack", message, reason="broken").body["action"] == action
    undertaker(broker).poll_all(1)
    redriven = call(broker, "POST", "/topics/tasks.dlq/redrive", {"filter": {"error_contains": "broken"}})
    assert (redriven.status, redriven.body["moved"], redriven.body["failed"]) == (200, 1, 0)
    (message,) = worker.poll_all(1)
    assert (message["value"], message["priority"], message["delivery_count"]) == ("work", 1, 1)
    assert worker.finish("ack", message).status == 200
