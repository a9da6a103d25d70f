"""Shows that the tests of the queue's traps can fail: breaks the product in one way after another, and runs them.

Each variant is a small mistake of the kind that its trap names. It is made in a copy of the sources, so the checkout stays
as it is; there its tests must fail, and they must pass on the copy as long as nothing is broken. The table that is printed
is the one in docs/testing.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Final, NamedTuple
from xml.etree import ElementTree

from scripts.queue_variants import VARIANTS, Variant

ROOT: Final = Path(__file__).resolve().parent.parent
_RUN_S_MAX: Final = 300
_BASELINE_S_MAX: Final = 900
_TEST_S_MAX: Final = 60


class Ran(NamedTuple):
    """Tests by their ids, without parameters."""

    passed: frozenset[str]
    failed: frozenset[str]
    output: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trap", type=int, action="append", help="only this one; may be given several times")
    chosen = parser.parse_args().trap
    variants = [one for one in VARIANTS if chosen is None or one.trap in chosen]
    if not variants:
        parser.error(f"no variant of trap {chosen}; there are {sorted({one.trap for one in VARIANTS})}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # who is asked to stop cleans up
    with tempfile.TemporaryDirectory(prefix="goqueue-variants-") as folder:
        copy = Path(folder)
        _make_copy(copy)
        problems = _baseline(copy, variants) or [
            problem for one in variants if (problem := _try(copy, one)) is not None
        ]
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print("\n".join(table(variants)))
    return 1 if problems else 0


def table(variants: Iterable[Variant]) -> list[str]:
    """What a run prints when every variant was caught."""
    rows = [
        f"| {one.trap} | {one.mistake} | {', '.join(f'`{_short(test)}`' for test in one.tests)} |"
        for one in variants
    ]
    return ["| trap | broken variant | failing tests |", "|---|---|---|", *rows]


def occurrences(variant: Variant, root: Path = ROOT) -> int:
    """How often what it replaces is there. It must be once, or the variant says nothing any more."""
    return (root / "src/goqueue" / variant.file).read_text().count(variant.old)


def _bare(test: str) -> str:
    return test.split("[")[0]


def _short(test: str) -> str:
    path, name = test.split("::")
    return f"{Path(path).stem}::{name}"


def _make_copy(copy: Path) -> None:
    for name in ("src", "tests"):
        copytree(ROOT / name, copy / name, ignore=ignore_patterns("__pycache__"))
    (copy / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    found = _import(copy)
    if str(copy) not in found:
        raise SystemExit(f"not the copy in {copy} would be tested: {found}")


def _import(copy: Path) -> str:
    """Where the package is found, or why it cannot be imported."""
    command = [sys.executable, "-c", "import goqueue.cli.main; print(goqueue.__file__)"]
    done = subprocess.run(
        command,
        cwd=copy,
        env=_environment(copy),
        capture_output=True,
        text=True,
        timeout=_TEST_S_MAX,
        check=False,
    )
    return done.stdout if done.returncode == 0 else done.stderr


def _baseline(copy: Path, variants: Sequence[Variant]) -> list[str]:
    """What fails though nothing is broken."""
    tests = sorted({test for one in variants for test in one.tests})
    _say(f"{len(tests)} tests on the unbroken copy")
    ran = _run(copy, tests, timeout_s=_BASELINE_S_MAX)
    bad = [test for test in tests if _bare(test) not in ran.passed - ran.failed]
    return [f"{test} does not pass though nothing is broken" for test in bad] + [ran.output] * bool(bad)


def _try(copy: Path, variant: Variant) -> str | None:
    """Why the variant was not caught."""
    title = f"trap {variant.trap}, {variant.mistake}"
    if (count := occurrences(variant, copy)) != 1:
        return f"{title}: its old text occurs {count} times in {variant.file}, not once"
    path = copy / "src/goqueue" / variant.file
    text = path.read_text()
    path.write_text(text.replace(variant.old, variant.new))
    try:
        if str(copy) not in (found := _import(copy)):
            return f"{title}: it cannot even be imported: {found}"
        ran = _run(copy, variant.tests, timeout_s=_RUN_S_MAX)
    finally:
        path.write_text(text)
    survived = [test for test in variant.tests if _bare(test) not in ran.failed]
    _say(f"{title}: {len(variant.tests) - len(survived)} of {len(variant.tests)} tests fail")
    return f"{title}: survives {', '.join(survived)}\n{ran.output}" if survived else None


def _run(copy: Path, tests: Sequence[str], *, timeout_s: float) -> Ran:
    report = copy / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--timeout", str(_TEST_S_MAX)]
    process = subprocess.Popen(
        [*command, f"--junitxml={report}", f"--basetemp={copy / 'tmp'}", *tests],
        cwd=copy,
        env=_environment(copy),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that brokers which a test has started end with it
    )
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        output = f"not done within {timeout_s} s"
    finally:
        _end_session(process)
    return _read(report, output)


def _end_session(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _environment(copy: Path) -> dict[str, str]:
    # Without caches of bytecode: a change that leaves time and size of a file as they were would not be seen.
    return os.environ | {"PYTHONPATH": f"{copy / 'src'}:{copy}", "PYTHONDONTWRITEBYTECODE": "1"}


def _read(report: Path, output: str) -> Ran:
    """A test that cannot even begin has not failed: an error is no failure."""
    passed: set[str] = set()
    failed: set[str] = set()
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            id = _bare(f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}")
            if case.find("failure") is not None:
                failed.add(id)
            elif case.find("error") is None:
                passed.add(id)
    return Ran(frozenset(passed), frozenset(failed), output)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
