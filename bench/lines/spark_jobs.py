"""`archive` and `compact` over a folder of segments: how fast, and how that changes with the data and with the cores.

A folder is filled anew for every round, for compaction changes it. Records are 100 B with keys, an eighth as many keys as
records. What is archived is counted and its offsets are summed up; what compaction leaves must be the last record of each key
and nothing else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.line import Line, Rounds, require, spread
from bench.scale import Run
from bench.spark_bench import CORES
from bench.spark_rows import RECORD_BYTES, Content, Pool, Sums, content, crc_sum
from bench.spark_topics import Filled, fill_folder, read_topic
from bench.workspace import fresh_folder
from goqueue.pipeline.jobs import archive, compact
from goqueue.pipeline.jobs.archive import ArchiveRequest
from goqueue.pipeline.jobs.compact import CompactRequest
from goqueue.pipeline.origin import Origin

TOPIC = "jobs"
PARTITION_COUNT = 4
_VALUE_BYTES = 100
_BATCH_ROWS = 8_000
_ROWS_PER_KEY = 8
_POOL_SHARE = 8  # of the data, so that batches come back
_CHECKED_ROWS_MAX = 3_000_000
_MB = 1e6


@dataclass(frozen=True, slots=True)
class Done:
    """MB of segments a second."""

    archive: float
    compact: float


def run(run: Run) -> list[Line]:
    if not run.spark.has_spark():
        return []
    scale = run.scale.spark
    _round(run.folder, run.spark.session(), scale.job_bytes[0])  # to warm up
    by_size = {
        size: [_round(run.folder, run.spark.session(), size) for _ in range(count)]
        for size, count in _round_counts(scale.job_bytes, scale.job_round_count).items()
    }
    alone = run.spark.session(1)
    _round(run.folder, alone, scale.job_bytes[0])
    middle = scale.job_bytes[len(scale.job_bytes) // 2]
    on_one = [_round(run.folder, alone, middle) for _ in by_size[middle]]
    run.spark.session()
    return job_lines(by_size, on_one, middle)


def _round_counts(sizes: tuple[int, ...], round_count: int) -> dict[int, int]:
    """The largest takes as long as all others together, so there is one round of it."""
    return {size: 1 if size == max(sizes) else round_count for size in sizes}


def _round(parent: Path, spark: SparkSession, size: int) -> Done:
    with fresh_folder(parent) as folder:
        data, lake = folder / "data", folder / "lake"
        rows = job_content(size)
        fill_folder(data, [Filled(TOPIC, rows, settings={"cleanup.policy": "compact"})])
        size_bytes = sum(path.stat().st_size for path in (data / "logs" / TOPIC).glob("*/*.log"))
        begun = time.perf_counter()
        report = archive.run(spark, ArchiveRequest(Origin(path=str(data)), [TOPIC], str(lake)))
        archived_s = time.perf_counter() - begun
        require(report.counts["records"] == rows.row_count, f"archive: {report.counts} of {rows.row_count}")
        _verify_lake(lake, rows)
        begun = time.perf_counter()
        report = compact.run(spark, CompactRequest(str(data), [TOPIC]))
        compacted_s = time.perf_counter() - begun
        require(not report.is_failure, f"compact: {report.notes}")
        verify_compacted(data, rows)
    return Done(size_bytes / _MB / archived_s, size_bytes / _MB / compacted_s)


def job_content(size_bytes: int) -> Content:
    batch_bytes = _BATCH_ROWS * (_VALUE_BYTES + RECORD_BYTES)
    batch_count = max(2, size_bytes // PARTITION_COUNT // batch_bytes)
    key_count = max(1, batch_count * _BATCH_ROWS // _ROWS_PER_KEY)
    pool_count = max(2, batch_count // _POOL_SHARE)
    pool = Pool(pool_count, batch_rows=_BATCH_ROWS, value_bytes=_VALUE_BYTES, key_count=key_count)
    return content(pool, batch_count=batch_count, partition_count=PARTITION_COUNT)


def _verify_lake(lake: Path, rows: Content) -> None:
    """Every offset; and what is in the rows, where they are few enough to look at them one by one."""
    names = ["offset", "key", "value"] if rows.row_count <= _CHECKED_ROWS_MAX else ["offset"]
    found = [0, 0, 0, 0]
    for path in lake.rglob("*.parquet"):
        table = pq.read_table(path, columns=names, partitioning=None)
        found[0] += table.num_rows
        found[3] += int(np.sum(table.column("offset").to_numpy()))
        for at, name in enumerate(names[1:], start=1):
            found[at] += crc_sum(table.column(name))
    wanted = rows.sums()
    if len(names) == 1:
        found[1:3] = wanted.key_crc, wanted.value_crc
    require(Sums(*found) == wanted, f"the lake has {Sums(*found)}, not {wanted}")


def verify_compacted(data: Path, rows: Content) -> None:
    found: dict[int, list[np.ndarray[tuple[int], np.dtype[np.int64]]]] = {}
    access = Origin(path=str(data)).access(topic=TOPIC)
    for partition, batch in read_topic(access, TOPIC, ("offset",)):
        found.setdefault(partition, []).append(batch.column("offset").to_numpy())
    wanted = rows.survivors()
    require(len(found) == rows.partition_count, f"compact: {len(found)} partitions are left")
    for partition, offsets in found.items():
        left = np.concatenate(offsets)
        same = len(left) == len(wanted) and bool((left == wanted).all())
        require(same, f"compact: partition {partition} has {len(left)} records, {len(wanted)} were to stay")


def job_lines(by_size: dict[int, list[Done]], on_one: list[Done], middle: int) -> list[Line]:
    sizes = sorted(by_size)
    lines: list[Line] = []
    for job in ("archive", "compact"):
        rates = {size: [_rate(one, job) for one in by_size[size]] for size in sizes}
        least = sizes[0]
        lines.append(
            Line(
                f"spark.{job}.{_shown(least)}",
                f"{job}, {_shown(least)} of segments, {CORES} cores",
                "MB/s",
                spread(rates[least]),
                details={"mb_per_s_per_core": spread(rates[least]).median / CORES},
            )
        )
        for size in sizes[1:]:
            lines.append(_growth(job, rates, size, least))
        lines.append(
            Rounds(rates[middle], [_rate(one, job) for one in on_one]).line(
                f"spark.{job}.{_shown(middle)}.vs_one_core",
                f"{job}, {_shown(middle)} of segments, {CORES} cores; against one core",
                "MB/s",
                reference="one core",
            )
        )
    return lines


def _growth(job: str, rates: dict[int, list[float]], size: int, least: int) -> Line:
    return Rounds(rates[size], rates[least][: len(rates[size])]).line(
        f"spark.{job}.{_shown(size)}.vs_{_shown(least)}",
        f"{job}, {_shown(size)} of segments, {CORES} cores; against {_shown(least)}",
        "MB/s",
        reference=_shown(least),
        details={"mb_per_s_per_core": spread(rates[size]).median / CORES},
    )


def _rate(done: Done, job: str) -> float:
    return done.archive if job == "archive" else done.compact


def _shown(size: int) -> str:
    return f"{size // 10**9}g" if size >= 10**9 else f"{size // 10**6}m"
