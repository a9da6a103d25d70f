"""The result of a run: as a table, as JSON, and in docs/benchmarks.md between markers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct, structs
from rich.console import Console
from rich.table import Table

from bench.line import BenchFailed, Bound, Goal, Line, Spread
from bench.machine import Machine
from bench.workspace import ROOT

RESULTS = ROOT / "results"
DOCS = ROOT.parent / "docs" / "benchmarks.md"
BEGIN = "<!-- begin: written by `python -m bench --docs` -->"
BEGIN_CLUSTER = "<!-- begin of the cluster: written by `python -m bench --docs` -->"
END = "<!-- end -->"
_CLUSTER = "cluster."  # what the names of its lines begin with
_HEADINGS = ("line", "what", "ours", "probe", "ratio (quartiles)", "goal", "")


class Report(Struct, frozen=True):
    taken: datetime
    is_quick: bool
    is_partial: bool  # some lines were left out by --only
    seconds: float
    machine: Machine
    lines: list[Line]
    absent_peers: dict[str, str]  # name to reason


def save(report: Report, path: Path | None) -> Path:
    if path is None:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{report.taken.astimezone(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return path


def newest() -> Path:
    """The last whole run at full scale."""
    for path in sorted(RESULTS.glob("*.json"), reverse=True):
        report = load(path)
        if not report.is_quick and not report.is_partial:
            return path
    raise BenchFailed(f"there is no whole run in {RESULTS}; run `make bench` first")


def load(path: Path) -> Report:
    return msgspec.json.decode(path.read_bytes(), type=Report)


def show(report: Report) -> None:
    table = Table(*_HEADINGS)
    for line in report.lines:
        table.add_row(*_cells(line, report))
    for cells in _absent_rows(report):
        table.add_row(*cells)
    Console(width=190).print(table)


def write_docs(path: Path) -> None:
    """The cluster has a table of its own; one of which the run has no line stays as it is."""
    report = load(path)
    text = DOCS.read_text(encoding="utf-8")
    for marker, is_cluster in ((BEGIN, False), (BEGIN_CLUSTER, True)):
        lines = [line for line in report.lines if line.name.startswith(_CLUSTER) is is_cluster]
        if lines:
            text = _with_table(text, marker, structs.replace(report, lines=lines), path.name)
    DOCS.write_text(text, encoding="utf-8")


def _with_table(text: str, marker: str, report: Report, name: str) -> str:
    before, begin, rest = text.partition(marker)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchFailed(f"{DOCS.name} has lost its markers {marker} and {END}")
    return f"{before}{marker}\n\n{_markdown(report, name)}\n\n{END}{after}"


def _markdown(report: Report, name: str) -> str:
    machine = report.machine
    packages = ", ".join(f"{package} {version}" for package, version in machine.packages.items())
    rows = [_HEADINGS, ("---",) * len(_HEADINGS), *(_cells(line, report) for line in report.lines)]
    rows += _absent_rows(report)
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    details = "\n".join(f"- `{line.name}`: {_details(line)}" for line in report.lines if line.details)
    return (
        f"Run of {report.taken:%Y-%m-%d %H:%M} UTC (`bench/results/{name}`), {report.seconds:.0f} s, on {machine.cores} "
        f"cores ({machine.processor}), {machine.memory_bytes / 1e9:.0f} GB of memory, {machine.kernel}, "
        f"{machine.file_system}, {machine.python}, {packages}. The load average before it was "
        f"{machine.load_average:g}.\n\n{table}\n\nDetails, medians over the rounds:\n\n{details}"
    )


def _cells(line: Line, report: Report) -> tuple[str, ...]:
    # A quick run is too short to judge by: its recoveries last less than the noise of a start.
    verdict = "" if report.is_quick else {True: "met", False: "MISSED", None: ""}[line.is_met]
    return (
        line.name,
        line.title,
        f"{_number(line.value.median)} {line.unit}",
        f"{_number(line.reference_value.median)} {line.unit}" if line.reference_value else "",
        _ratio(line.ratio),
        _goal(line.goal, line.unit),
        verdict,
    )


def _absent_rows(report: Report) -> list[tuple[str, ...]]:
    """A peer that was not measured is not passed over in silence."""
    empty = ("",) * (len(_HEADINGS) - 3)
    return [(f"peer {name}", f"absent: {reason}", *empty, "") for name, reason in report.absent_peers.items()]


def _ratio(ratio: Spread | None) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" if ratio else ""


def _goal(goal: Goal | None, unit: str) -> str:
    if goal is None:
        return ""
    match goal.bound:
        case Bound.RATIO_AT_LEAST:
            return f"ratio ≥ {goal.amount:g}"
        case Bound.RATIO_AT_MOST:
            return f"ratio ≤ {goal.amount:g}"
        case Bound.VALUE_AT_LEAST:
            return f"≥ {_number(goal.amount)} {unit}"
        case Bound.VALUE_BELOW:
            return f"< {_number(goal.amount)} {unit}"


def _details(line: Line) -> str:
    return ", ".join(
        f"{name} {value if isinstance(value, str) else _number(value)}"
        for name, value in line.details.items()
    )


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
