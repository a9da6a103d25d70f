"""Work that Spark only schedules."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.tasks import TASK_COUNT_MAX, attempt_name, run_tasks


def test_results_come_in_the_order_of_the_items(spark: SparkSession) -> None:
    assert run_tasks(spark, lambda word: word.upper(), ["a", "b", "c"]) == ["A", "B", "C"]
    assert run_tasks(spark, str, []) == []


def test_task_that_fails_is_run_again_under_another_name(spark: SparkSession, tmp_path: Path) -> None:
    def fail_once(folder: str) -> list[str]:
        names = sorted(path.name for path in Path(folder).iterdir())
        (Path(folder) / attempt_name()).touch()
        if not names:
            raise OSError("the first attempt fails")
        return names

    (names,) = run_tasks(spark, fail_once, [str(tmp_path)])
    assert len(names) == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_job_has_a_limit_of_tasks(spark: SparkSession) -> None:
    with pytest.raises(PipelineError, match="at most"):
        run_tasks(spark, str, range(TASK_COUNT_MAX + 1))
