"""Records in, findings out: how many of each verdict, and the first few that are wrong.

The work is done in Arrow inside Spark's Python workers. A value is looked at where it lies in its batch; the only rows
that leave a task are counts per batch and a bounded number of samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.jobs.audit.avro_judge import AvroJudge
from goqueue.pipeline.jobs.audit.framing import Framing
from goqueue.pipeline.jobs.audit.json_judge import JsonJudge
from goqueue.pipeline.jobs.audit.outcomes import TOMBSTONE, Judge, Judged, Verdict
from goqueue.pipeline.jobs.audit.schemas import Schema, SchemaKind

INPUT_COLUMNS: Final = ("topic", "partition", "offset", "key", "value")
COUNT, VIOLATION, BREAK = "count", "violation", "break"  # kinds of findings
_FINDING: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("verdict", pa.string()),
        ("new_verdict", pa.string()),
        ("count", pa.int64()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("path", pa.string()),
        ("message", pa.string()),
    ]
)
_FINDING_DDL: Final = (
    "kind string, topic string, partition int, verdict string, new_verdict string, count bigint, "
    "offset bigint, key binary, path string, message string"
)


def find(
    records: DataFrame,
    schema: Schema,
    new_schema: Schema | None = None,
    *,
    framing: Framing = Framing.AUTO,
    samples_max: int,
) -> DataFrame:
    """Needs the columns topic, partition, offset, key and value. Samples are at most so many per task, partition and kind."""
    judge_of(schema, new_schema, framing)  # what is wrong with a schema is said here, not by every task
    work = partial(_find, schema, new_schema, framing, samples_max)
    return records.select(*INPUT_COLUMNS).mapInArrow(work, _FINDING_DDL)


def tally(findings: DataFrame, *, samples_max: int) -> DataFrame:
    """One row per kind, topic, partition and verdict: the count, and the samples with the lowest offsets."""
    sample = F.when(F.col("kind") != COUNT, F.struct("offset", "key", "path", "message"))
    return findings.groupBy("kind", "topic", "partition", "verdict", "new_verdict").agg(
        F.sum("count").alias("count"),
        F.slice(F.sort_array(F.collect_list(sample)), 1, samples_max).alias("samples"),
    )


@cache  # once in each worker, whatever the number of its tasks
def judge_of(schema: Schema, new_schema: Schema | None, framing: Framing) -> Judge:
    if new_schema is not None and new_schema.kind is not schema.kind:
        raise PipelineError(
            f"{schema.name!r} is of kind {schema.kind} and {new_schema.name!r} of kind {new_schema.kind}; "
            "both must be of the same"
        )
    if schema.kind is SchemaKind.AVRO:
        return AvroJudge(schema, new_schema, framing)
    return JsonJudge(schema, new_schema)


def _find(
    schema: Schema,
    new_schema: Schema | None,
    framing: Framing,
    samples_max: int,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    judge = judge_of(schema, new_schema, framing)
    taken: Counter[tuple[str, str, int]] = Counter()
    for batch in batches:
        judged = _judge_all(judge, batch.column("value"), has_new=new_schema is not None)
        yield from _counts(batch, judged).to_batches()
        samples = list(_samples(batch, judged, taken, samples_max))
        if samples:
            yield pa.RecordBatch.from_pylist(samples, _FINDING)


def _judge_all(judge: Judge, values: pa.Array, *, has_new: bool) -> list[Judged]:
    tombstone = Judged(TOMBSTONE, TOMBSTONE if has_new else None)
    return [tombstone if value is None else judge.judge(value) for value in slices(values)]


def slices(values: pa.Array) -> Iterator[memoryview | None]:
    """Each value where it lies; None for null."""
    if len(values) == values.null_count:
        yield from [None] * len(values)
        return
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].tolist()
    view = memoryview(data) if data is not None else memoryview(b"")
    is_valid = values.is_valid().to_pylist() if values.null_count else [True] * len(values)
    for index, has_value in enumerate(is_valid):
        yield view[ends[index] : ends[index + 1]] if has_value else None


def _counts(batch: pa.RecordBatch, judged: Sequence[Judged]) -> pa.Table:
    rows = pa.table(
        {
            "topic": batch.column("topic"),
            "partition": batch.column("partition"),
            "verdict": pa.array([one.now.verdict for one in judged], pa.string()),
            "new_verdict": pa.array([one.new.verdict if one.new else None for one in judged], pa.string()),
        }
    )
    counted = rows.group_by(rows.column_names).aggregate([([], "count_all")])
    nothing = {name: pa.nulls(len(counted), _FINDING.field(name).type) for name in _FINDING.names}
    columns = nothing | {
        "kind": pa.array([COUNT] * len(counted), pa.string()),
        "count": counted.column("count_all"),
        **{name: counted.column(name) for name in rows.column_names},
    }
    return pa.table(columns, schema=_FINDING)


def _samples(
    batch: pa.RecordBatch, judged: Sequence[Judged], taken: Counter[tuple[str, str, int]], samples_max: int
) -> Iterator[dict[str, object]]:
    for index, one in enumerate(judged):
        if one.now.verdict in (Verdict.INVALID, Verdict.UNPARSABLE):
            kind, outcome = VIOLATION, one.now
        elif breaks(one):
            kind, outcome = BREAK, one.new or one.now
        else:
            continue
        topic, partition = batch.column("topic")[index].as_py(), batch.column("partition")[index].as_py()
        if taken[kind, topic, partition] >= samples_max:
            continue
        taken[kind, topic, partition] += 1
        yield {
            "kind": kind,
            "topic": topic,
            "partition": partition,
            "offset": batch.column("offset")[index].as_py(),
            "key": batch.column("key")[index].as_py(),
            "verdict": one.now.verdict,
            "new_verdict": one.new.verdict if one.new else None,
            "count": 0,
            "path": outcome.path,
            "message": outcome.message,
        }


def breaks(judged: Judged) -> bool:
    """Right under the schema, and wrong under the new one."""
    return (
        judged.new is not None
        and judged.now.verdict is Verdict.VALID
        and judged.new.verdict is not Verdict.VALID
    )
