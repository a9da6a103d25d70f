"""What a run ran on: enough to judge its numbers, nothing that names a host or a path."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from msgspec import Struct

from bench.workspace import ROOT, file_system_of
from goqueue import __version__
from goqueue.log.records import IS_COMPILED

_PACKAGES = (
    "uvloop",
    "uvicorn",
    "httptools",
    "msgspec",
    "crc32c",
    "prometheus-client",
    "confluent-kafka",
    "pyspark",
    "pyarrow",
)


class Machine(Struct, frozen=True):
    cores: int
    processor: str
    memory_bytes: int
    kernel: str
    file_system: str
    python: str
    goqueue: str
    is_kernel_compiled: bool  # the C twin of the record codec
    packages: dict[str, str]
    load_average: float  # of the minute before the run: how busy the others were


def describe_machine() -> Machine:
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        processor=_field("/proc/cpuinfo", "model name"),
        memory_bytes=int(_field("/proc/meminfo", "MemTotal").split()[0]) * 1024,
        kernel=f"{platform.system()} {platform.release().partition('-')[0]}",
        file_system=file_system_of(ROOT),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        goqueue=__version__,
        is_kernel_compiled=IS_COMPILED,
        packages={name: version(name) for name in _PACKAGES},
        load_average=round(os.getloadavg()[0], 2),
    )


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        found, _, value = line.partition(":")
        if found.strip() == name:
            return value.strip()
    return "unknown"
