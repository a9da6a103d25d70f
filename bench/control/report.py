"""What a run of `bench.control` found: as a table, as JSON, and in docs/scale.md between two markers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from bench.control.beats import Beats
from bench.control.scenes import Kept, Spent
from bench.line import BenchFailed
from bench.machine import Machine
from bench.report import RESULTS
from bench.workspace import ROOT

DOCS = ROOT.parent / "docs" / "scale.md"
BEGIN = "<!-- begin: written by `python -m bench.control --docs` -->"
END = "<!-- end -->"
_TEXTS = {
    "join": "all nodes join; a node",
    "create": "topics of 100 partitions are created; a topic",
    "idle": "nothing happens; a second",
    "lose_node": "a node dies that leads many",
    "node_back": "it is back, in sync, and leads again",
    "restart": "rolling restart; a node, mean of {count} that are not the controller",
    "large_topic": "a topic with a tenth of all partitions is created",
    "lose_controller": "the controller dies; mean of {count} times",
}


class Scene(Struct, frozen=True):
    name: str
    count: int  # of what the costs are to be divided by
    spent: Spent


class Size(Struct, frozen=True):
    node_count: int
    partition_count: int
    busy_leader_count: int  # partitions that were led by the node that died
    scenes: list[Scene]
    kept: Kept
    beats: Beats
    election_ms: list[int]  # each time that the controller died: until all had heard from the next one


class ControlReport(Struct, frozen=True):
    taken: datetime
    seconds: float
    machine: Machine
    sizes: list[Size]


def save(report: ControlReport, path: Path | None) -> Path:
    if path is None:
        folder = RESULTS / "control"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{report.taken.astimezone(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    return path


def show(report: ControlReport) -> None:
    headings, *rows = _rows(report)
    table = Table(*headings)
    for row in rows:
        table.add_row(*row)
    Console(width=170).print(table)


def write_docs(report: ControlReport) -> None:
    text = DOCS.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchFailed(f"{DOCS.name} has lost its markers {BEGIN} and {END}")
    headings, *rows = _rows(report)
    table = "\n".join(f"| {' | '.join(row)} |" for row in (headings, ("---",) * len(headings), *rows))
    machine = report.machine
    stand = (
        f"Taken {report.taken:%Y-%m-%d %H:%M} UTC in {report.seconds:.0f} s; {machine.processor}, Python {machine.python}; "
        f"load average of {machine.cores} cores at the end: {machine.load_average:.1f}."
    )
    DOCS.write_text(f"{before}{BEGIN}\n\n{stand}\n\n{table}\n\n{END}{after}", encoding="utf-8")


def _rows(report: ControlReport) -> Iterator[Sequence[str]]:
    sizes = report.sizes
    yield ("", "", *(f"{size.node_count} nodes, {size.partition_count:,} partitions" for size in sizes))
    for at, scene in enumerate(sizes[0].scenes):
        for what, cell in _FIGURES:
            if scene.name == "idle" and what in (
                "longest turn",
                "bytes decided",
                "until all have applied it",
            ):
                continue
            yield (_text(scene.name, at, sizes), what, *(cell(size.scenes[at]) for size in sizes))
    for what, pick in (("least", min), ("most", max)):
        yield (
            f"the controller dies; {what}",
            "until all have applied it",
            *(_time(pick(size.election_ms) / 1e3) for size in sizes),
        )
    yield (
        "a node says that it lives; a heartbeat",
        "controller computes",
        *(_short(size.beats.controller_s) for size in sizes),
    )
    yield ("", "with signatures and encoding", *(_short(size.beats.handled_s) for size in sizes))
    yield ("all nodes do; a second", "controller computes", *(_time(size.beats.share) for size in sizes))
    yield ("partitions led by the node that died", "", *(f"{size.busy_leader_count:,}" for size in sizes))
    yield ("the catalogue", "snapshot", *(f"{size.kept.snapshot_bytes / 1e6:.2f} MB" for size in sizes))
    yield ("", "to save", *(_time(size.kept.save_s) for size in sizes))
    yield ("", "to load", *(_time(size.kept.load_s) for size in sizes))
    yield ("", "in memory", *(f"{size.kept.memory_bytes / 1e6:.1f} MB" for size in sizes))


def _text(name: str, at: int, sizes: Sequence[Size]) -> str:
    """A small cluster may have fewer to take the mean of than the others."""
    counts = [size.scenes[at].count for size in sizes]
    few, many = min(counts), max(counts)
    return _TEXTS[name].format(count=f"{few}" if few == many else f"{few} to {many}")


def _each(value: Callable[[Spent], float]) -> Callable[[Scene], str]:
    return lambda scene: _time(value(scene.spent) / scene.count)


_FIGURES: tuple[tuple[str, Callable[[Scene], str]], ...] = (
    ("controller computes", _each(lambda spent: spent.controller.cpu_s)),
    ("a listener computes", _each(lambda spent: spent.listener.cpu_s)),
    ("longest turn", lambda scene: _time(scene.spent.controller.longest_s)),
    (
        "controller sends",
        lambda scene: _size(scene.spent.controller.sent_bytes / scene.count),
    ),
    ("bytes decided", lambda scene: _size(scene.spent.entry_bytes / scene.count)),
    ("until all have applied it", _each(lambda spent: spent.virtual_ms / 1e3)),
)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


def _short(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def _size(count: float) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count / 1e3:.1f} KB"
