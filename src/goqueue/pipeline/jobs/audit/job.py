"""The job: read, judge, count, report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Row, SparkSession

from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.jobs.audit.findings import BREAK, COUNT, INPUT_COLUMNS, find, judge_of, tally
from goqueue.pipeline.jobs.audit.framing import Framing
from goqueue.pipeline.jobs.audit.outcomes import Verdict
from goqueue.pipeline.jobs.audit.schemas import Schema, SchemaSource
from goqueue.pipeline.jobs.report import Report
from goqueue.pipeline.jobs.selection import Selection

SAMPLES_MAX: Final = 1_000
_HEADINGS: Final = ("topic", "partition", "result", "count", "offset", "key", "path", "message")
_BREAKS, _MENDS = "breaks", "mends"
_KEY_LENGTH_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class AuditRequest:
    records: Selection
    schema: SchemaSource
    new_schema: SchemaSource | None = None
    framing: Framing = Framing.AUTO  # of Avro values
    samples: int = 20  # violations to show, and as many that the new schema breaks

    def __post_init__(self) -> None:
        if not 0 <= self.samples <= SAMPLES_MAX:
            raise OptionError(f"samples is {self.samples}; it must be 0 to {SAMPLES_MAX}")


def check(request: AuditRequest) -> None:
    """Whether the schemas are there and are some; `run` says the same, but needs Spark for it."""
    judge_of(*_schemas(request), request.framing)


def run(spark: SparkSession, request: AuditRequest) -> Report:
    schema, new_schema = _schemas(request)
    columns = (*INPUT_COLUMNS, "timestamp")
    records = request.records.read(spark, columns)
    samples_max = max(1, request.samples)
    findings = find(records, schema, new_schema, framing=request.framing, samples_max=samples_max)
    rows = tally(findings, samples_max=samples_max).collect()
    return report_of(rows, schema, new_schema, samples=request.samples)


def report_of(rows: Iterable[Row], schema: Schema, new_schema: Schema | None, *, samples: int) -> Report:
    """What `tally` has found, in the order of topics, partitions and offsets."""
    tallied = sorted(rows, key=lambda row: (row.topic, row.partition, row.verdict, row.new_verdict or ""))
    counts: Counter[tuple[str, int, str]] = Counter()
    shown: dict[str, list[tuple[object, ...]]] = {}
    for row in tallied:
        if row.kind == COUNT:
            for result in _results(row):
                counts[row.topic, row.partition, result] += row["count"]
        else:
            result = _BREAKS if row.kind == BREAK else row.verdict
            shown.setdefault(row.kind, []).extend(_sample(row, result, one) for one in row.samples)
    totals: Counter[str] = Counter()
    for (_, _, result), count in counts.items():
        totals[result] += count
    lines: list[tuple[object, ...]] = [
        (topic, partition, result, count, None, None, None, None)
        for (topic, partition, result), count in counts.items()
    ]
    for found in shown.values():
        lines += sorted(found, key=_place)[:samples]
    results = [*Verdict, *([_BREAKS, _MENDS] if new_schema is not None else [])]
    return Report(
        "audit",
        counts={"records": sum(totals[verdict] for verdict in Verdict)}
        | {str(result): totals[result] for result in results},
        headings=_HEADINGS,
        rows=lines,
        notes=_notes(totals, schema, new_schema),
        is_failure=totals[Verdict.INVALID] + totals[Verdict.UNPARSABLE] + totals[_BREAKS] > 0,
    )


def _schemas(request: AuditRequest) -> tuple[Schema, Schema | None]:
    return request.schema.load(), None if request.new_schema is None else request.new_schema.load()


def _results(row: Row) -> list[str]:
    """What a count counts for."""
    results = [row.verdict]
    if row.new_verdict is not None and row.verdict != row.new_verdict:
        results.append(_MENDS if row.new_verdict == Verdict.VALID else _BREAKS)
    return results


def _notes(totals: Counter[str], schema: Schema, new_schema: Schema | None) -> list[str]:
    notes = []
    checked = sum(totals[verdict] for verdict in Verdict) - totals[Verdict.TOMBSTONE]
    wrong = totals[Verdict.INVALID] + totals[Verdict.UNPARSABLE]
    if wrong:
        notes.append(f"{wrong} of {checked} values do not fit {schema.name!r}")
    if new_schema is not None and totals[_BREAKS]:
        notes.append(
            f"{totals[_BREAKS]} of {checked} values fit {schema.name!r} and would not fit {new_schema.name!r}"
        )
    return notes


def _sample(row: Row, result: str, one: Row) -> tuple[object, ...]:
    return (row.topic, row.partition, result, None, one.offset, shown_key(one.key), one.path, one.message)


def _place(line: tuple[Any, ...]) -> tuple[Any, ...]:  # cells of whatever types
    topic, partition, _, _, offset, *_ = line
    return (topic, partition, offset)


def shown_key(key: bytes | bytearray | None) -> str | None:
    """As text where it is some, else in hexadecimal."""
    if key is None:
        return None
    try:
        text = bytes(key).decode()
    except UnicodeDecodeError:
        text = bytes(key).hex()
    return text if len(text) <= _KEY_LENGTH_MAX else f"{text[: _KEY_LENGTH_MAX - 1]}…"
