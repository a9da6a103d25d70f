"""The demo's report: what it shows is what was found, and what is wrong is said."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from demo import __main__ as command
from demo.checks import Check, Found, check
from demo.diary import Diary, Event, in_causal_order
from demo.expected import Expected, expect
from demo.orders import open_shop
from demo.page import render
from demo.plots import duration
from demo.series import WHOLE, hops, rates
from demo.steps import Steps
from demo.story import Jobs, Options, Outcome

from goqueue.pipeline.declarative.state import RunState
from goqueue.pipeline.jobs.report import Report

S_NS = 1_000_000_000
HEADINGS = ("kind", "topic", "what", "count", "p50_ms", "p95_ms", "p99_ms", "max_ms", "detail")
STEP = ("hop", "orders", "publish.received > publish.persisted", 1_000, 1.5, 2.0, 3.0, 4.0, None)
END = ("end to end", "orders", None, 980, 10.0, 20.0, 30.0, 40.0, None)
AUDITED = ("orders", 0, "invalid", None, 7, "c-001", "/quantity", '"</script>" is not of type "integer"')


def event(name: str, time_ns: int, trace_id: str = "a") -> Event:
    return Event(trace_id, "1", name, time_ns, "worker-1", 0, 5)


def found_as(expected: Expected) -> Found:
    """As if all had gone well."""
    return Found(
        orders=expected.orders,
        deliveries=expected.deliveries,
        acked=expected.acked,
        nacks=expected.nacks,
        dead_letters=Counter(
            {
                ("rejected", "no JSON"): expected.rejected,
                ("retries exhausted", "sold out"): expected.exhausted,
            }
        ),
        unreadable=expected.unreadable,
        revenue_cents=dict(expected.revenue_cents),
        repeated_windows=0,
        enriched_rows=expected.rows,
        archived_rows=expected.orders,
        archived_dead_letters=expected.poison,
        audit={
            "valid": expected.rows,
            "invalid": expected.invalid,
            "unparsable": expected.unparsable,
            "breaks": expected.breaks,
        },
        traces={"traces": expected.orders, "dead_letters": expected.poison, "bad_lines": 0},
        acked_traces=expected.acked,
    )


@pytest.fixture(scope="module")
def expected() -> Expected:
    return expect(open_shop(seed=3, count=1_000))


def outcome_of(expected: Expected, found: Found, folder: Path) -> Outcome:
    run = RunState(pipeline="orders", run_id="1", pid=1, host="here", started_at="", updated_at="")
    audit = Report(
        "audit",
        {"valid": 1},
        ("topic", "partition", "result", "count", "offset", "key", "path", "message"),
        [AUDITED],
    )
    jobs = Jobs(run, Report("archive", {"records": 1}), audit, Report("traces", {}, HEADINGS, [STEP, END]))
    events = [
        event(name, second * S_NS)
        for second in range(5)
        for name in ("publish.received", "consume.acked", "consume.nacked", "dlq.routed")
    ]
    return Outcome(Options(1_000, 5.0, 3, folder), expected, found, check(expected, found), events, jobs)


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="demo-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, object] = json.loads(found[1])
    return data


def test_what_came_out_as_expected_is_right(expected: Expected) -> None:
    assert all(one.is_right for one in check(expected, found_as(expected)))


def test_one_cent_too_much_is_noticed(expected: Expected) -> None:
    window = next(iter(expected.revenue_cents))
    wrong = dict(expected.revenue_cents) | {window: expected.revenue_cents[window] + 1}
    checks = check(expected, replace(found_as(expected), revenue_cents=wrong))
    assert [one.what for one in checks if not one.is_right] == [
        "windows with the right sum",
        "revenue in cents",
    ]


@pytest.mark.parametrize(
    "field",
    [
        "orders",
        "deliveries",
        "acked",
        "nacks",
        "unreadable",
        "repeated_windows",
        "enriched_rows",
        "archived_rows",
    ],
)
def test_one_record_more_or_less_is_noticed(expected: Expected, field: str) -> None:
    found = found_as(expected)
    checks = check(expected, replace(found, **{field: getattr(found, field) + 1}))
    assert sum(not one.is_right for one in checks) == 1


def test_page_has_all_plots_and_its_numbers_as_json(expected: Expected, tmp_path: Path) -> None:
    page = render(outcome_of(expected, found_as(expected), tmp_path), Steps())
    data = data_of(page)
    assert page.count("<svg") == 4
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', page)
    assert used
    assert set(used) <= set(ids)
    assert "http://" not in re.sub(
        r'(xmlns(:\w+)?|rdf:\w+)="[^"]*"|<metadata>.*?</metadata>', "", page, flags=re.DOTALL
    )
    assert data["is_right"] is True
    assert data["revenue"] == [
        {"start_ms": start, "category": category, "cents": cents}
        for (start, category), cents in sorted(expected.revenue_cents.items())
    ]
    assert "All 23 numbers are right" in page


def test_page_of_a_run_gone_wrong_says_so(expected: Expected, tmp_path: Path) -> None:
    found = replace(found_as(expected), archived_rows=999)
    page = render(outcome_of(expected, found, tmp_path), Steps())
    assert data_of(page)["is_right"] is False
    assert "1 of 23 numbers are wrong" in page
    assert '<td class="no">WRONG</td>' in page


def test_text_of_records_cannot_break_the_page(expected: Expected, tmp_path: Path) -> None:
    page = render(outcome_of(expected, found_as(expected), tmp_path), Steps())
    assert '"&lt;/script&gt;" is not of type' in page
    assert page.count("</script>") == 1


@pytest.mark.parametrize(("rows", "code"), [(1_000, 0), (999, 1)])
def test_exit_code_says_whether_the_numbers_are_right(
    expected: Expected,
    rows: int,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome = outcome_of(expected, replace(found_as(expected), archived_rows=rows), tmp_path / "report")
    monkeypatch.setattr(command, "tell", lambda *_args, **_options: outcome)
    monkeypatch.setattr(command, "_interrupt_on_signals", lambda: None)
    assert command.main(["--orders", "1000", "--report", str(tmp_path / "report")]) == code
    said = capsys.readouterr().out
    assert (tmp_path / "report" / "index.html").resolve().as_uri() in said
    assert ("WRONG: orders in the archive: 999 instead of 1,000" in said) is (code == 1)


def test_orders_out_of_range_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--orders", "5"])
    assert "5 is not 100 to 1000000" in capsys.readouterr().err


def test_nothing_is_stored_later_than_a_worker_has_it() -> None:
    events = [event("publish.persisted", 9), event("consume.fetched", 7), event("consume.fetched", 8)]
    assert [one.time_ns for one in in_causal_order(events)] == [7, 7, 8]


def test_diary_is_written_as_lines_for_each_writer(tmp_path: Path) -> None:
    diary = Diary()
    early = Event("a", "1", "publish.received", 1, "producer")
    diary.note([early, event("consume.acked", 2)._replace(group="shipping")])
    assert diary.write(tmp_path / "traces") == 2
    producer, worker = (
        json.loads((tmp_path / "traces" / f"{name}.jsonl").read_text()) for name in ("producer", "worker-1")
    )
    assert producer == {
        "trace_id": "a",
        "span_id": "1",
        "name": "publish.received",
        "topic": "orders",
        "time_unix_nano": 1,
    }
    assert (worker["partition"], worker["offset"], worker["group"]) == (0, 5, "shipping")


def test_rates_count_every_event_once() -> None:
    found = rates(
        [event("consume.acked", at * S_NS // 4) for at in range(41)], ["consume.acked", "dlq.routed"]
    )
    assert sum(found.by_name["consume.acked"]) * found.width_s == pytest.approx(41)
    assert sum(found.by_name["dlq.routed"]) == 0
    assert len(found.starts_s) <= 60


def test_hops_are_in_the_order_of_an_orders_life_with_the_whole_last() -> None:
    other = ("hop", "orders", "consume.fetched > consume.acked", 5, 1.0, 1.0, 1.0, 1.0, None)
    found = hops(Report("traces", {}, HEADINGS, [END, other, STEP]))
    assert [hop.name for hop in found] == ["published → stored", "in hand → acknowledged", WHOLE]
    assert (found[0].count, found[0].p99_ms) == (1_000, 3.0)


@pytest.mark.parametrize(
    ("value_ms", "text"), [(0.5, "500 µs"), (3.0, "3 ms"), (300.0, "300 ms"), (10_000.0, "10 s")]
)
def test_durations_are_in_the_unit_that_people_would_use(value_ms: float, text: str) -> None:
    assert duration(value_ms) == text


def test_check_compares_what_it_names() -> None:
    assert Check("x", 1, 1, "here").is_right
    assert not Check("x", 1, 2, "here").is_right
