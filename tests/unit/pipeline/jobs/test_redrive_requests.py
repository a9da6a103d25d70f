"""Asking the broker to send letters back: within a limit, at a rate, and what is made of its answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.jobs.redrive.job import RedriveRequest, report_of
from goqueue.pipeline.jobs.redrive.plan import Run, Single, Step
from goqueue.pipeline.jobs.redrive.requests import Allowance, Outcome, Terms, carry_out
from goqueue.pipeline.jobs.rest import BrokerRest, Refused
from goqueue.pipeline.origin import Origin

Reply = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]
TERMS = Terms("orders.dlq")


@contextmanager
def _broker(reply: Reply) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Something that answers redrives as it is told, and remembers what it was asked."""
    asked: list[dict[str, Any]] = []

    class Server(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            status, answer = reply(body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _answer(moved: int, *, parked: int = 0, failed: int = 0, errors: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"moved": moved, "pending": 0, "failed": failed, "parked": parked, "errors": list(errors)}


def _all(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, _answer(body["limit"])


def _counts(outcome: Outcome) -> tuple[int, int, int, int, int]:
    return outcome.moved, outcome.parked, outcome.failed, outcome.gone, outcome.left


def test_run_is_asked_for_by_time_and_a_single_letter_by_offset() -> None:
    with _broker(_all) as (url, asked):
        steps: list[Step] = [Single(0, 9), Run(0, 3, 100, 200, 5)]
        outcome = carry_out(url, steps, TERMS, Allowance(None, None))
    assert _counts(outcome) == (6, 0, 0, 0, 0)
    common = {"partition": 0, "max_redrives": 5, "force": False, "dry_run": False}
    assert asked == [
        {**common, "limit": 5, "filter": {"from_time": "100", "to_time": "200"}},
        {**common, "limit": 1, "offset": 9},
    ]


def test_what_the_broker_does_not_find_any_more_was_gone_before() -> None:
    with _broker(lambda body: (200, _answer(2, parked=1))) as (url, _):
        outcome = carry_out(url, [Run(0, 0, 0, 1, 10)], TERMS, Allowance(None, None))
    assert _counts(outcome) == (2, 1, 0, 7, 0)


def test_limit_is_for_all_partitions_together_and_what_did_not_go_is_given_back() -> None:
    def reply(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 200, _answer(0) if body.get("offset") == 0 else _answer(body["limit"])

    with _broker(reply) as (url, asked):
        steps: list[Step] = [Single(0, 0), Run(0, 1, 0, 9, 10), Single(0, 20)]
        outcome = carry_out(url, steps, TERMS, Allowance(4, None))
    assert [body["limit"] for body in asked] == [1, 4]
    assert _counts(outcome) == (4, 0, 0, 1, 7)


def test_topic_that_is_gone_fails_its_letters_and_no_others() -> None:
    def reply(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["offset"] == 1:
            return 404, {"error": "there is no topic 'orders'", "code": "TOPIC_NOT_FOUND"}
        return _all(body)

    with _broker(reply) as (url, _):
        outcome = carry_out(url, [Single(0, 1), Single(0, 2)], TERMS, Allowance(None, None))
    assert _counts(outcome) == (1, 0, 1, 0, 0)
    assert list(outcome.notes) == ["there is no topic 'orders'"]


def test_other_refusals_end_the_job_with_the_sentence_of_the_broker() -> None:
    def reply(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 507, {"error": "the disk is full", "code": "DISK_FULL"}

    with _broker(reply) as (url, _), pytest.raises(Refused, match="the disk is full"):
        carry_out(url, [Single(0, 1)], TERMS, Allowance(None, None))


def test_terms_are_told_to_the_broker() -> None:
    terms = Terms("orders.dlq", to="elsewhere", redrives_max=7, force=True, dry_run=True)
    with _broker(_all) as (url, asked):
        carry_out(url, [Single(1, 4)], terms, Allowance(None, 50))
    assert asked == [
        {
            "partition": 1,
            "limit": 1,
            "offset": 4,
            "to": "elsewhere",
            "max_redrives": 7,
            "force": True,
            "dry_run": True,
            "per_second": 50,
        }
    ]


def test_rate_is_kept_over_all_requests() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    allowance = Allowance(None, 10, clock=lambda: now[0], sleep=sleep)
    assert [allowance.take(20), allowance.take(5), allowance.take(1)] == [20, 5, 1]
    assert slept == [2.0, 0.5]


def test_broker_that_does_not_answer_is_asked_a_few_times_and_named() -> None:
    pauses: list[float] = []
    with (
        BrokerRest("http://127.0.0.1:1", sleep=pauses.append) as broker,
        pytest.raises(PipelineError, match=r"no answer from the broker at http://127\.0\.0\.1:1.*5 times"),
    ):
        broker.ask("GET", "/groups", dict)
    assert pauses == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"limit": 0}, "limit is 0; it must be 1 to"),
        ({"rate": 100_001}, "rate is 100001; it must be 1 to 100000"),
        ({"redrives_max": 0}, "max-redrives is 0; it must be 1 to 1000"),
        ({"to": "orders.dlq"}, "to is 'orders.dlq', which takes dead letters"),
        ({"to": "other.dlq"}, "to is 'other.dlq', which takes dead letters"),
        ({"origin": Origin(path="/data")}, "'/data' is a folder; dead letters are sent back by a broker"),
    ],
)
def test_request_that_makes_no_sense_is_refused(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"origin": Origin(), "url": "http://h:1", "topic": "orders.dlq", **change}
    with pytest.raises(OptionError, match=said):
        RedriveRequest(**given)


def test_letters_that_cannot_go_make_the_job_fail() -> None:
    outcome = Outcome(moved=1, failed=2, notes={"there is no topic 'orders'": None})
    report = report_of(outcome, [], 3, dry_run=False)
    assert report.is_failure
    assert report.notes == ["there is no topic 'orders'"]
    assert (report.counts["moved"], report.counts["failed"], report.counts["requests"]) == (1, 2, 3)
