"""The demo from beginning to end: a broker, a day's orders, workers, a pipeline, three jobs, and a look at what came out."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from demo.analysis import Analysis, spark_session
from demo.broker import Addresses, running_broker
from demo.checks import Check, Found, check
from demo.diary import TOPIC, Event
from demo.expected import Expected, expect
from demo.orders import open_shop
from demo.rest import ShopClient
from demo.shift import DEAD_LETTERS, REVENUE, UNREADABLE, WORKER_COUNT, Shift, working
from demo.steps import Steps
from demo.topics import dead_letters_of, messages_of, revenue_of
from goqueue.client.rest import RestClient
from goqueue.pipeline.declarative.state import RunState
from goqueue.pipeline.jobs.report import Report

LOGS: Final = ("broker.log", "spark.log")
PATIENCE_S: Final = 300.0  # beyond the time that orders are published in


@dataclass(frozen=True, slots=True)
class Options:
    orders: int
    seconds: float
    seed: int
    report: Path


@dataclass(frozen=True, slots=True)
class Jobs:
    """What Spark has done."""

    pipeline: RunState
    archive: Report
    audit: Report
    traces: Report


@dataclass(frozen=True, slots=True)
class Outcome:
    options: Options
    expected: Expected
    found: Found
    checks: list[Check]
    events: list[Event]
    jobs: Jobs

    @property
    def is_right(self) -> bool:
        return all(one.is_right for one in self.checks)


def tell(options: Options, steps: Steps, on_spark: Callable[[], None]) -> Outcome:
    """Everything that is started here has ended when it returns or raises. `on_spark` is called when Spark has started."""
    shop = open_shop(options.seed, options.orders)
    expected = expect(shop)
    with _workspace(options.report) as folder, ExitStack() as started:
        shop.write_tables(folder)
        with steps.step("broker", "starting a broker in a process of its own"):
            broker = started.enter_context(running_broker(folder))
        steps.say("broker", f"REST at {broker.http}, Kafka at {broker.kafka}")
        with working(shop, broker.url, options.seconds) as shift:
            steps.say("orders", _announcement(expected, options))
            with steps.step("spark", "starting Spark meanwhile"):
                spark = started.enter_context(spark_session(folder / "spark.log"))
                on_spark()
            with steps.step("orders", "waiting until every order is done with"):
                shift.wait(options.seconds + PATIENCE_S)
                _await_dead_letters(broker, shift)
        steps.say("orders", _result(shift))
        lines = shift.diary.write(folder / "traces")
        steps.say("orders", f"{lines:,} events of {expected.orders:,} traces written as JSON lines")
        jobs, rows = _analyse(Analysis(spark, broker.kafka, folder), steps)
        with steps.step("check", "reading the topics back over REST, to compare with the generator"):
            found = _look(broker, shift, jobs, rows)
    return Outcome(options, expected, found, check(expected, found), shift.diary.events(), jobs)


def _await_dead_letters(broker: Addresses, shift: Shift) -> None:
    """An order is declared dead first, and carried to the dead letters then."""
    with closing(ShopClient(broker.url)) as client:
        client.await_records(DEAD_LETTERS, shift.tally.dead, threading.Event())


def _announcement(expected: Expected, options: Options) -> str:
    return (
        f"{expected.orders:,} orders in {options.seconds:g} s, {expected.delayed:,} of them delayed, {expected.poison:,} of "
        f"them poison; {WORKER_COUNT} workers take them from the queue"
    )


def _result(shift: Shift) -> str:
    tally = shift.tally
    return f"{tally.acked:,} acknowledged, {tally.nacks:,} times given back, {tally.dead:,} dead letters"


@dataclass(frozen=True, slots=True)
class _Rows:
    enriched: int
    archived: int
    archived_dead_letters: int


def _analyse(analysis: Analysis, steps: Steps) -> tuple[Jobs, _Rows]:
    with steps.step("pipeline", "orders.yaml: parse, enrich, revenue by window; to a topic and a lake"):
        pipeline = analysis.run_pipeline(lambda text: steps.say("", text))
        enriched = analysis.enriched_rows()
    with steps.step("archive", "the topics as they are, into Parquet"):
        archived = analysis.archive()
        rows = _Rows(enriched, analysis.archived_rows(TOPIC), analysis.archived_rows(DEAD_LETTERS))
        steps.say("", f"{archived.counts['records']:,} records in {archived.counts['files']} files")
    with steps.step("audit", "every order against its schema, and against the next one"):
        audited = analysis.audit()
        wrong = audited.counts["invalid"] + audited.counts["unparsable"]
        steps.say("", f"{wrong:,} do not fit; {audited.counts['breaks']:,} would not fit the next schema")
    with steps.step("traces", "how long each step of an order's way took"):
        traced = analysis.traces()
        steps.say("", f"{traced.counts['events']:,} events, {traced.counts['storms']} retry storms")
    return Jobs(pipeline, archived, audited, traced), rows


def _look(broker: Addresses, shift: Shift, jobs: Jobs, rows: _Rows) -> Found:
    with RestClient(broker.url) as client:
        revenue, repeated = revenue_of(client, REVENUE)
        whole = [row for row in jobs.traces.rows if row[0] == "end to end"]
        return Found(
            orders=sum(1 for _ in messages_of(client, TOPIC)),
            deliveries=shift.tally.deliveries,
            acked=shift.tally.acked,
            nacks=shift.tally.nacks,
            dead_letters=dead_letters_of(client, DEAD_LETTERS),
            unreadable=dead_letters_of(client, UNREADABLE).total(),
            revenue_cents=revenue,
            repeated_windows=repeated,
            enriched_rows=rows.enriched,
            archived_rows=rows.archived,
            archived_dead_letters=rows.archived_dead_letters,
            audit=jobs.audit.counts,
            traces=jobs.traces.counts,
            acked_traces=sum(int(str(row[jobs.traces.headings.index("count")])) for row in whole),
        )


@contextmanager
def _workspace(report: Path) -> Iterator[Path]:
    """A folder for everything but the report. Where something failed, the logs are kept beside the report."""
    folder = Path(tempfile.mkdtemp(prefix="goqueue-demo-"))
    for name in LOGS:
        (report / name).unlink(missing_ok=True)  # of a run before
    try:
        yield folder
    except Exception:
        report.mkdir(parents=True, exist_ok=True)
        for name in LOGS:
            if (folder / name).exists():
                shutil.copy(folder / name, report)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
