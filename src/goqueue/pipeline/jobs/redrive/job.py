"""The job: Spark chooses among the dead letters, the broker sends them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession

from goqueue.model.dead_letter_headers import REDRIVES_MAX, SUFFIX
from goqueue.pipeline.errors import OptionError, PipelineError
from goqueue.pipeline.jobs.redrive.letters import INPUT_COLUMNS, letters
from goqueue.pipeline.jobs.redrive.plan import (
    RUN_LETTERS_MAX,
    Run,
    Single,
    Step,
    chosen,
    runs,
    singles,
    summary,
)
from goqueue.pipeline.jobs.redrive.requests import Allowance, Outcome, Terms, carry_out
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.jobs.selection import Selection, check_topics
from goqueue.pipeline.origin import Origin
from goqueue.pipeline.spark_errors import SPARK_ERRORS, root_cause

SINGLES_MAX: Final = 1_000_000
RATE_MAX: Final = 100_000
_REDRIVES_LIMIT: Final = 1_000
_REQUEST_S_MAX: Final = 60  # that one request may take at the rate that was asked for
_HEADINGS: Final = ("topic", "reason", "dead_letters", "chosen")


@dataclass(frozen=True, slots=True)
class RedriveRequest:
    origin: Origin
    url: str  # of the broker's REST API
    topic: str  # of dead letters
    where: str | None = None  # over `LETTER_COLUMNS`
    to: str | None = None  # instead of where each came from
    limit: int | None = None
    rate: int | None = None  # messages per second
    redrives_max: int = REDRIVES_MAX
    force: bool = False  # also what was sent back too often
    dry_run: bool = False

    def __post_init__(self) -> None:
        _check("limit", self.limit, 2**63 - 1)
        _check("rate", self.rate, RATE_MAX)
        _check("max-redrives", self.redrives_max, _REDRIVES_LIMIT)
        if self.origin.path is not None:
            raise OptionError(f"{self.origin.path!r} is a folder; dead letters are sent back by a broker")
        if self.to is not None and (self.to == self.topic or self.to.endswith(SUFFIX)):
            raise OptionError(
                f"to is {self.to!r}, which takes dead letters; name a topic that somebody works on"
            )


def run(spark: SparkSession, request: RedriveRequest) -> Report:
    check_topics(request.origin, [request.topic, *([request.to] if request.to is not None else [])])
    records = Selection(request.origin, [request.topic]).read(spark, INPUT_COLUMNS)
    marked = chosen(letters(records), request.where)
    steps, found = _plan(marked, request)
    terms = Terms(request.topic, request.to, request.redrives_max, request.force, request.dry_run)
    outcome = carry_out(request.url, steps, terms, Allowance(request.limit, request.rate))
    return report_of(outcome, found, len(steps), dry_run=request.dry_run)


def report_of(outcome: Outcome, found: list[Row], request_count: int, *, dry_run: bool) -> Report:
    notes = ["nothing was sent: these are the numbers of a dry run"] if dry_run else []
    if outcome.parked:
        notes.append(f"{outcome.parked} were sent back too often already and stay; force sends them, too")
    if outcome.pending:
        notes.append(f"{outcome.pending} are on their way and arrive as soon as their topic takes them")
    return Report(
        "redrive",
        counts={
            "dead_letters": sum(row.letters for row in found),
            "chosen": sum(row.chosen for row in found),
            "moved": outcome.moved,
            "pending": outcome.pending,
            "parked": outcome.parked,
            "failed": outcome.failed,
            "gone_before": outcome.gone,
            "left_by_limit": outcome.left,
            "requests": request_count,
        },
        headings=_HEADINGS,
        rows=[(row.origin_topic, row.reason, row.letters, row.chosen) for row in found],
        notes=[*outcome.notes, *notes],
        is_failure=outcome.failed > 0,
    )


def _plan(marked: DataFrame, request: RedriveRequest) -> tuple[list[Step], list[Row]]:
    kept = marked.select("partition", "offset", "died_ms", "is_chosen", "origin_topic", "reason").persist(
        StorageLevel.MEMORY_AND_DISK
    )
    most = RUN_LETTERS_MAX if request.rate is None else min(RUN_LETTERS_MAX, _REQUEST_S_MAX * request.rate)
    try:
        found = summary(kept).orderBy("origin_topic", "reason").collect()
        together = runs(kept, letters_max=most)
        steps: list[Step] = [Run(*row) for row in together.collect()]
        alone = singles(kept, together).orderBy("partition", "first_offset").limit(SINGLES_MAX + 1).collect()
    except SPARK_ERRORS as error:
        if request.where is None:
            raise
        reason = root_cause(str(error))
        raise OptionError(f"where is {request.where!r}, which fails: {reason}") from None
    finally:
        kept.unpersist()
    if len(alone) > SINGLES_MAX:
        raise PipelineError(
            f"more than {SINGLES_MAX} letters lie scattered among others and would be sent one by one; narrow where"
        )
    return [*steps, *(Single(*row) for row in alone)], found


def _check(name: str, number: int | None, most: int) -> None:
    if number is not None and not 1 <= number <= most:
        raise OptionError(f"{name} is {number}; it must be 1 to {most}")
