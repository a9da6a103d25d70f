"""Spark imports every module named `pyspark_*` in a process of its own, whatever the query reads."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import sys
from pyspark.sql.datasource import DataSource
import pyspark_goqueue
assert issubclass(pyspark_goqueue.DefaultSource, DataSource)
print(pyspark_goqueue.DefaultSource.name(), sorted({"pyarrow", "numpy", "goqueue.client", "goqueue.log"} & set(sys.modules)))
"""


def test_source_is_found_by_its_module_whose_import_is_light() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "goqueue []"
