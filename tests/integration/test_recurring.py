"""Recurring schedules on a real broker: each due time once, also across kill -9 and a time of being down."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.support.broker import Broker
from tests.support.rest_queue import Json, call, create

from goqueue.model.duration import parse_instant_ms

WAIT_S = 60.0


def shown(broker: Broker, name: str = "beat") -> Json:
    answer = call(broker, "GET", f"/topics/tasks/recurring/{name}")
    assert answer.status == 200, answer
    return answer.body


def due_times(broker: Broker) -> list[int]:
    answer = call(broker, "GET", "/topics/tasks/partitions/0/messages?limit=1000")
    assert answer.status == 200, answer
    return [parse_instant_ms(one["headers"]["gq-scheduled-at"]) for one in answer.body["messages"]]


def until(broker: Broker, is_right: Callable[[Json], bool]) -> Json:
    """The schedule as it is once something is so."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = shown(broker)
        if is_right(found):
            return found
        # Parked in the broker until something arrives, or for a moment.
        call(broker, "GET", f"/topics/tasks/partitions/0/messages?offset={len(due_times(broker))}&wait=500ms")
    raise AssertionError(f"it did not come to that: {shown(broker)}")


def test_a_schedule_survives_kill_9_and_fires_each_due_time_once(tmp_path: Path) -> None:
    body = {"name": "beat", "every": "1s", "message": {"key": "k", "value": "v", "priority": "high"}}
    with Broker(tmp_path) as broker:
        create(broker)
        made = call(broker, "POST", "/topics/tasks/recurring", body)
        assert made.status == 201, made
    for _ in range(4):
        with Broker(tmp_path) as broker:  # which is killed at the end, at any moment of a firing
            before = shown(broker)["fired"]
            until(broker, lambda found, before=before: found["fired"] >= before + 2)  # type: ignore[misc]  # bound now
    with Broker(tmp_path) as broker:
        again = call(broker, "POST", "/topics/tasks/recurring", body)
        assert again.status == 201
        assert again.body["created_at"] == made.body["created_at"]
        other = call(broker, "POST", "/topics/tasks/recurring", {**body, "every": "2s"})
        assert (other.status, other.body["code"]) == (409, "SCHEDULE_EXISTS")
        until(broker, lambda found: found["fired"] >= 10)
        assert call(broker, "DELETE", "/topics/tasks/recurring/beat").status == 200
        assert call(broker, "GET", "/topics/tasks/recurring/beat").status == 404
        found = due_times(broker)
        assert found == sorted(set(found))
        first_ms = parse_instant_ms(made.body["next_fire_at"])
        assert found[0] == first_ms
        assert {(at_ms - first_ms) % 1_000 for at_ms in found} == {0}
        assert broker.stop() == 0
    with Broker(tmp_path) as broker:
        assert call(broker, "GET", "/topics/tasks/recurring").body == {"schedules": [], "count": 0}
        assert call(broker, "GET", "/topics/tasks/delayed").body["count"] == 0


def test_after_a_time_of_being_down_there_is_one_message_and_the_rest_is_counted(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        create(broker)
        start_ms = time.time_ns() // 1_000_000 - 500
        body = {"name": "beat", "every": "1s", "start_at": str(start_ms), "message": {"value": "v"}}
        assert call(broker, "POST", "/topics/tasks/recurring", body).status == 201
        missed = until(broker, lambda found: found["fired"] >= 1)["missed"]
    killed_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 < killed_ms + 4_000:
        time.sleep(0.1)  # being down is what is tested
    with Broker(tmp_path) as broker:
        until(broker, lambda found: found["missed"] >= missed + 2 and found["state"] == "active")
        due = due_times(broker)
        assert due == sorted(set(due))
        assert {(at_ms - start_ms) % 1_000 for at_ms in due} == {0}
