"""Which dead letters were chosen, and with how few requests the broker can be asked for exactly those.

The broker takes letters by the time of their death, or one by one. Neighbours in time among which all were chosen are a *run*:
one request for all of them. The others are asked for by their offsets. A run of a few letters costs more than it saves, since
the broker looks through the partition for it.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.jobs.redrive.letters import LETTER_COLUMNS
from goqueue.pipeline.spark_errors import SPARK_ERRORS, quiet, told

RUN_LETTERS_MIN: Final = 10
RUNS_MAX: Final = 1_000  # of a partition: a run has at least that part of its letters
RUN_LETTERS_MAX: Final = 10_000  # about: so that the answer comes within seconds


class Run(NamedTuple):
    """All letters of a partition that died within [start_ms, end_ms)."""

    partition: int
    first_offset: int
    start_ms: int
    end_ms: int
    letters: int


class Single(NamedTuple):
    partition: int
    first_offset: int

    @property
    def letters(self) -> int:
        return 1


Step: TypeAlias = Run | Single


def chosen(letters: DataFrame, where: str | None) -> DataFrame:
    """The letters with `died_ms`, and whether each `is_chosen`: it can go somewhere, and the condition holds."""
    can_go = ~f.col("is_missing") & f.col("origin_partition").isNotNull() & f.col("origin_offset").isNotNull()
    condition = f.lit(True) if where is None else _condition(letters, where)
    return letters.withColumns({"died_ms": f.unix_millis("timestamp"), "is_chosen": can_go & condition})


def _condition(letters: DataFrame, where: str) -> Column:
    """False where it cannot be said."""
    try:
        with quiet():
            kind = letters.select(f.expr(where).alias("where")).dtypes[0][1]
    except SPARK_ERRORS as error:
        reason = told(error).sentence
        raise OptionError(
            f"where is {where!r}, which Spark refuses: {reason}; a dead letter has {', '.join(LETTER_COLUMNS)}"
        ) from None
    if kind != "boolean":
        raise OptionError(f"where is {where!r}, which is neither true nor false of a dead letter but {kind}")
    return f.coalesce(f.expr(where), f.lit(False))


def summary(marked: DataFrame) -> DataFrame:
    """What lies there, and what of it was chosen, by topic and reason."""
    return marked.groupBy("origin_topic", "reason").agg(
        f.count("*").alias("letters"), f.count_if("is_chosen").alias("chosen")
    )


def runs(marked: DataFrame, *, letters_max: int = RUN_LETTERS_MAX) -> DataFrame:
    """Rows of `Run`, each of about `letters_max` letters at most: what died in one moment is never divided. The last moment
    of a partition is in none: another letter may have died in it since."""
    moments = _moments(marked)
    before = Window.partitionBy("partition").orderBy("died_ms")
    partition = Window.partitionBy("partition")
    island = f.sum(f.col("is_mixed").cast("bigint")).over(before)
    of_island = Window.partitionBy("partition", "island").orderBy("died_ms")
    part = f.floor((f.sum("letters").over(of_island) - f.col("letters")) / letters_max)
    grouped = (
        moments.withColumns({"island": island, "in_partition": f.sum("letters").over(partition)})
        .where(~f.col("is_mixed"))
        .withColumn("part", part)
        .groupBy("partition", "island", "part")
        .agg(
            f.min("first_offset").alias("first_offset"),
            f.min("died_ms").alias("start_ms"),
            (f.max("died_ms") + 1).alias("end_ms"),
            f.sum("letters").alias("letters"),
            f.first("in_partition").alias("in_partition"),
        )
    )
    is_worth_it = (f.col("letters") >= RUN_LETTERS_MIN) & (
        f.col("letters") * RUNS_MAX >= f.col("in_partition")
    )
    return grouped.where(is_worth_it).select("partition", "first_offset", "start_ms", "end_ms", "letters")


def singles(marked: DataFrame, found: DataFrame) -> DataFrame:
    """Rows of `Single`: what was chosen and is in no run."""
    within = [
        marked["partition"] == found["partition"],
        marked["died_ms"] >= found["start_ms"],
        marked["died_ms"] < found["end_ms"],
    ]
    rest = marked.where("is_chosen").join(f.broadcast(found), within, "left_anti")
    return rest.select("partition", f.col("offset").alias("first_offset"))


def _moments(marked: DataFrame) -> DataFrame:
    """The milliseconds in which letters died, and whether others than chosen ones are or may be among them."""
    last = f.max("died_ms").over(Window.partitionBy("partition"))
    is_mixed: Column = (f.col("chosen") < f.col("letters")) | (f.col("died_ms") == last)
    return (
        marked.groupBy("partition", "died_ms")
        .agg(
            f.count("*").alias("letters"),
            f.count_if("is_chosen").alias("chosen"),
            f.min("offset").alias("first_offset"),
        )
        .withColumn("is_mixed", is_mixed)
    )
