"""Memory that is freed stays with the process, where the C library can do that."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from goqueue.pipeline.memory import keep_freed_memory

# Buffers of 4 MiB one after the other, and how often the kernel had to find memory for them.
PROGRAM = """
import resource
from goqueue.pipeline.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        first, second, third = (bytes(bytearray(4 << 20)) for _ in range(3))
        del first, second, third
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
keep_freed_memory()
faults()
print(before, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_buffers_use_the_memory_of_those_before_them() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    before, after = map(int, printed.stdout.split())
    assert after < before / 10


def test_c_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    assert keep_freed_memory.__wrapped__() is False
