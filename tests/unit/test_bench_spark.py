"""The rows, the checks and the arithmetic of the benchmark's pipeline lines; nothing here starts Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bench.line import BenchFailed, spread
from bench.lines.spark_jobs import TOPIC, Done, job_content, job_lines, verify_compacted
from bench.lines.spark_latency import floor_of
from bench.lines.spark_read import topic_content
from bench.lines.spark_sink import KEY_BYTES, NUMBER_DIGITS, VALUE_BYTES, numbers_of
from bench.peers.maven import read_pins
from bench.peers.spark_connector import _PINS, connector_title
from bench.spark_bench import Pass, tree_cpu_s
from bench.spark_null import NullSource, save_batches
from bench.spark_rows import Content, Pool, Sums, content, crc_sum
from bench.spark_topics import Filled, fill_folder, read_topic

from goqueue.log.compression import Codec
from goqueue.pipeline.columns import KAFKA_COLUMNS, arrow_schema
from goqueue.pipeline.origin import Origin


@pytest.fixture
def rows() -> Content:
    pool = Pool(3, batch_rows=20, value_bytes=100, key_count=30)
    return content(pool, batch_count=7, partition_count=2)


def sums_in(folder: Path, topic: str) -> Sums:
    found = [0, 0, 0, 0]
    for _, batch in read_topic(Origin(path=str(folder)).access(topic=topic), topic, KAFKA_COLUMNS):
        found[0] += batch.num_rows
        found[1] += crc_sum(batch.column("key"))
        found[2] += crc_sum(batch.column("value"))
        found[3] += int(np.sum(batch.column("offset").to_numpy()))
    return Sums(*found)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_a_filled_folder_holds_exactly_the_rows_that_the_sums_are_of(
    tmp_path: Path, rows: Content, codec: Codec
) -> None:
    fill_folder(tmp_path, [Filled("t", rows, codec)])
    assert sums_in(tmp_path, "t") == rows.sums()


def test_another_row_gives_other_sums(tmp_path: Path, rows: Content) -> None:
    changed = Content(rows.pool, rows.order[::-1].copy(), rows.partition_count)
    changed.order[0] = (changed.order[0] + 1) % 3
    fill_folder(tmp_path, [Filled("t", changed)])
    assert sums_in(tmp_path, "t") != rows.sums()


def test_rows_can_be_compressed_about_as_well_as_what_people_send() -> None:
    pool = Pool(1, batch_rows=1_000, value_bytes=1_024, key_count=1_000)
    plain, small = (len(pool.encoded(codec)[0]) for codec in (Codec.NONE, Codec.ZSTD))
    assert 2 < plain / small < 5


def test_a_topic_has_about_as_many_rows_as_asked_for_in_batches_of_the_size_asked_for() -> None:
    found = topic_content(100_000, 100, 16_384)
    assert 0.9 < found.row_count / 100_000 <= 1
    assert 0.9 < len(found.pool.encoded(Codec.NONE)[0]) / 16_384 < 1.1


def test_survivors_are_the_last_records_of_their_keys(rows: Content) -> None:
    keys = rows.pool.keys[rows.order].ravel().tolist()
    last = {key: offset for offset, key in enumerate(keys)}
    assert rows.survivors().tolist() == sorted(last.values())


def test_a_folder_that_was_not_compacted_fails_the_run(tmp_path: Path, rows: Content) -> None:
    fill_folder(tmp_path, [Filled(TOPIC, rows, settings={"cleanup.policy": "compact"})])
    with pytest.raises(BenchFailed, match="were to stay"):
        verify_compacted(tmp_path, rows)


def test_a_job_has_as_much_as_asked_for_and_an_eighth_as_many_keys() -> None:
    found = job_content(40_000_000)
    size = sum(len(batch) for batch in found.pool.encoded(Codec.NONE)) / len(found.pool.batches)
    assert 0.85 < size * len(found.order) * found.partition_count / 40_000_000 < 1.1
    assert int(found.pool.keys.max()) + 1 <= found.partition_rows // 8


def sink_rows(numbers: list[int], keys: list[int] | None = None, filler: bytes = b"x") -> pa.RecordBatch:
    values = [b"%0*d" % (NUMBER_DIGITS, one) + filler * (VALUE_BYTES - NUMBER_DIGITS) for one in numbers]
    named = [b"%0*d" % (KEY_BYTES, one) for one in keys or numbers]
    columns = [pa.array(named, pa.binary()), pa.array(values, pa.binary())]
    return pa.record_batch(columns, names=["key", "value"])


def test_a_written_row_says_which_one_it_is_even_in_a_part_of_a_batch() -> None:
    batch = sink_rows([5, 0, 99_999_999])
    assert numbers_of(batch).tolist() == [5, 0, 99_999_999]
    assert numbers_of(batch.slice(1, 2)).tolist() == [0, 99_999_999]


def test_a_written_row_with_another_key_or_value_fails_the_run() -> None:
    with pytest.raises(BenchFailed, match="key of another"):
        numbers_of(sink_rows([1, 2], [2, 1]))
    with pytest.raises(BenchFailed, match="other bytes"):
        numbers_of(sink_rows([1], filler=b"y"))
    with pytest.raises(BenchFailed, match="another length"):
        numbers_of(pa.record_batch([pa.array([b"1"]), pa.array([b"2"])], names=["key", "value"]))


def test_the_null_source_gives_what_was_saved_a_file_for_each_task(tmp_path: Path) -> None:
    schema = arrow_schema(KAFKA_COLUMNS)
    empty = {name: [None] for name in KAFKA_COLUMNS}
    batches = [pa.RecordBatch.from_pydict(empty | {"offset": [at]}, schema=schema) for at in range(3)]
    save_batches(tmp_path, 0, schema, iter(batches[:2]))
    save_batches(tmp_path, 1, schema, iter(batches[2:]))
    source = NullSource({"path": str(tmp_path)})
    reader = source.reader(source.schema())  # type: ignore[arg-type] # it does not look at it
    parts = [[*reader.read(part)] for part in reader.partitions()]
    assert [[batch.column("offset").to_pylist() for batch in part] for part in parts] == [[[0], [1]], [[2]]]


def test_rates_are_per_core_and_processor_time_per_million() -> None:
    one = Pass(rows=2_000_000, row_bytes=100, seconds=2.0, cpu_s=3.0, server_cpu_s=1.0)
    assert (one.rate, one.rate_per_core, one.mb_per_s_per_core) == (1_000_000, 500_000, 50)
    assert (one.cpu_s_per_million, one.server_cpu_s_per_million) == (1.5, 0.5)


def test_the_time_of_a_process_has_that_of_those_below_it() -> None:
    before = tree_cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    assert tree_cpu_s(os.getpid()) > before


def test_a_trigger_is_told_with_its_parts() -> None:
    durations = [
        {"triggerExecution": 100, "addBatch": 60},
        {"triggerExecution": 120, "addBatch": 80, "walCommit": 4},
    ]
    floor = floor_of(durations)
    assert spread(floor.triggers).median == 110
    assert floor.phases == {"addBatch": 70, "walCommit": 2}


def test_jobs_are_held_against_less_data_and_against_one_core() -> None:
    by_size = {10**9: [Done(200, 400)], 250 * 10**6: [Done(100, 100)]}
    lines = {line.name: line for line in job_lines(by_size, [Done(125, 250)], 10**9)}
    assert {name: line.ratio and line.ratio.median for name, line in lines.items()} == {
        "spark.archive.250m": None,
        "spark.archive.1g.vs_250m": 2.0,
        "spark.archive.1g.vs_one_core": 1.6,
        "spark.compact.250m": None,
        "spark.compact.1g.vs_250m": 4.0,
        "spark.compact.1g.vs_one_core": 1.6,
    }


def test_the_connector_is_pinned_with_all_that_it_needs() -> None:
    pins = read_pins(_PINS)
    assert all(len(digest) == 64 and name.endswith(".jar") for name, digest in pins.items())
    assert any("kafka-clients" in name for name in pins)
    assert connector_title().startswith("spark-sql-kafka 4.")
