"""What Spark says, in one sentence."""

from __future__ import annotations

import logging

from pyspark.logger import PySparkLogger

from goqueue.pipeline.spark_errors import quiet, root_cause, told

PARSE = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'x': extra input 'x'. SQLSTATE: 42601 (line 2, pos 5)

== SQL ==
SELECT *
FORM x
-----^^^
"""
ANALYSIS = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `foo` cannot be resolved. Did you mean one of the following? [`k`, `at`]. SQLSTATE: 42703; line 3 pos 2;
'CreateViewCommand `v2`, SELECT
  foo FROM orders, false
+- 'Project ['foo]
"""
MODE = "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append. This output mode is not supported for streaming aggregations without watermark on streaming DataFrames/DataSets. SQLSTATE: 42KDE"
WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance running: Traceback (most recent call last):
  File "worker.py", line 1, in main
    raise X
goqueue.pipeline.errors.DataLoss: offsets of orders-0 from 5 on are gone

	at org.apache.spark.Something
"""
USER = """Job aborted: Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "views.py", line 3, in f
ZeroDivisionError: division by zero
"""
RAISED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 in stage 1.0 failed
Caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] the record at offset 5 of orders-0 is no row SQLSTATE: P0001
"""
MASKED = """Traceback (most recent call last):
  File "runner.py", line 1, in main
goqueue.pipeline.errors.OptionError: there is no option x

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "runner.py", line 2, in main
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value
"""
JAVA = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
Caused by: org.apache.spark.SparkException: outer
Caused by: java.io.IOException: No space left on device
"""


def test_parser_says_what_and_where() -> None:
    found = told(ValueError(PARSE))
    assert found == ("Syntax error at or near 'x': extra input 'x'", 2, 6)


def test_analyser_says_what_and_where_without_its_plan() -> None:
    found = told(ValueError(ANALYSIS))
    assert found.sentence.endswith("Did you mean one of the following? [`k`, `at`]")
    assert (found.line, found.column) == (3, 3)


def test_error_without_a_place_is_a_sentence_alone() -> None:
    found = told(ValueError(MODE))
    assert found.sentence.startswith("Invalid streaming output mode: append.")
    assert (found.line, found.column) == (None, None)


def test_cause_is_the_innermost_sentence() -> None:
    assert root_cause(WORKER) == "offsets of orders-0 from 5 on are gone"
    assert root_cause(USER) == "ZeroDivisionError: division by zero"
    assert root_cause(RAISED) == "the record at offset 5 of orders-0 is no row"
    assert root_cause(JAVA) == "IOException: No space left on device"
    assert root_cause(MASKED) == "there is no option x"
    assert root_cause("") == "no reason was given"
    assert len(root_cause("x" * 10_000)) < 1_010


def test_logger_that_was_made_quiet_is_still_one_that_spark_can_use() -> None:
    """A plain one under its name would make PySpark fail where it only wants to tell of an error."""
    with quiet():
        pass
    assert isinstance(logging.getLogger("SQLQueryContextLogger"), PySparkLogger)
