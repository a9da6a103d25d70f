"""One Spark session per process, with defaults that suit this broker's work on two cores or on a cluster.

Every default can be overridden by name. What has to do with this machine (memory, folders, the Python that runs the
workers) is set only where Spark runs on this machine, too.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from goqueue.pipeline.errors import PipelineError
from goqueue.pipeline.session.home import lean_home
from goqueue.pipeline.session.java import find_java

LOCAL = "local[*]"
_MASTERS = ("local", "spark://", "k8s://")
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_FOLDER_PREFIX = "gq-spark-"
_GIB = 1 << 30
_PYTHON = "spark.pyspark.python"
_MEMORY_MAX_GIB = 8
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.python.worker.reuse": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Where to run, and what to set. `remote` is a Spark Connect server (sc://HOST:PORT) and excludes `master`."""

    app_name: str = "goqueue"
    master: str | None = None
    remote: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    is_short: bool = False  # a job of seconds: start fast rather than run fast

    def __post_init__(self) -> None:
        if self.master is not None and self.remote is not None:
            raise PipelineError(
                f"master is {self.master!r} and remote is {self.remote!r}; a session has one of them"
            )
        if self.master is not None and not (self.master == "yarn" or self.master.startswith(_MASTERS)):
            raise PipelineError(
                f"master is {self.master!r}; it can be local[*], local[4], spark://HOST:7077, yarn or k8s://..."
            )
        if self.remote is not None and not self.remote.startswith("sc://"):
            raise PipelineError(f"remote is {self.remote!r}; a Spark Connect server is sc://HOST:PORT")

    @property
    def is_local(self) -> bool:
        return self.remote is None and (self.master or LOCAL).startswith("local")


def start_session(options: SessionOptions | None = None) -> SparkSession:
    """The session of this process: a new one, or the one that there is."""
    options = options or SessionOptions()
    if options.remote is not None:
        return _remote_session(options)
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    os.environ["JAVA_HOME"] = str(find_java().home)
    settings = dict(_DEFAULTS)
    java_options = [f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"]
    _choose_python(options)
    if options.is_local:
        os.environ.setdefault("SPARK_HOME", str(lean_home()))
        folder = _own_folder()
        java_options.append(f"-Djava.io.tmpdir={folder / 'tmp'}")
        settings |= _local_settings(folder)
    if options.is_short:
        java_options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    settings |= options.settings
    given = settings.pop("spark.driver.extraJavaOptions", "")
    settings["spark.driver.extraJavaOptions"] = " ".join([*java_options, given]).strip()
    return _session(SparkSession.builder.master(options.master or LOCAL), options, settings)


def _choose_python(options: SessionOptions) -> None:
    """The driver plans with this Python, which has this package. That of a cluster's executors is the user's choice; Spark heeds the
    setting for it only where `spark-submit` starts the driver."""
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if options.is_local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    elif _PYTHON in options.settings:
        os.environ["PYSPARK_PYTHON"] = options.settings[_PYTHON]


def _remote_session(options: SessionOptions) -> SparkSession:
    """A server's session: what concerns its machine is its own affair."""
    settings = {name: value for name, value in _DEFAULTS.items() if name.startswith("spark.sql.session")}
    builder = SparkSession.builder.remote(options.remote or "")
    return _session(builder, options, settings | dict(options.settings))


def _session(
    builder: SparkSession.Builder, options: SessionOptions, settings: Mapping[str, str]
) -> SparkSession:
    builder = builder.appName(options.app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _local_settings(folder: Path) -> dict[str, str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "spark.driver.memory": f"{max(1, min(_MEMORY_MAX_GIB, memory // _GIB // 4))}g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder / "sockets"),
    }


def _own_folder() -> Path:
    """For everything that Spark leaves behind. Gone with the process; its name is short, for it holds sockets."""
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-"))
    for name in ("tmp", "local", "sockets"):
        (folder / name).mkdir()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _sweep(parent: Path) -> None:
    """The folders of processes that were killed."""
    for folder in parent.glob(f"{_FOLDER_PREFIX}*-*"):
        pid = folder.name.removeprefix(_FOLDER_PREFIX).partition("-")[0]
        if pid.isdigit() and not _is_alive(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
