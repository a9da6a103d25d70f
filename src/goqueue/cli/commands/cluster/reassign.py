"""`goqueue cluster reassign`: move partitions to other nodes, a few at a time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from goqueue.cli.options import Failure, OutputOption, UrlOption, YesOption, confirm
from goqueue.cli.output import Output, show
from goqueue.client.reassignments import NewPlan, Plan, PlanMove, PlanPreview, ReassignmentClient

_POLL_S = 0.5
_MOVE_HEADINGS = (
    "topic",
    "partition",
    "state",
    "before",
    "after",
    "in sync",
    "records left",
    "percent",
    "reason",
)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Move partitions to other nodes.")

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help='JSON: [{"topic": "t", "partition": 0, "replicas": ["node-1", "node-2"]}, ...].',
        show_default=False,
    ),
]
DrainOption = Annotated[
    str | None,
    typer.Option("--drain", help="A node that shall have nothing any more.", show_default=False),
]
BalanceOption = Annotated[bool, typer.Option("--balance", help="Every node shall have the same.")]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Balance only this topic; may be repeated.", show_default=False),
]
ThrottleOption = Annotated[
    int | None,
    typer.Option("--throttle", min=1, help="Bytes per second that each node may copy.", show_default=False),
]
ParallelOption = Annotated[int, typer.Option(min=1, max=1_000, help="How many partitions move at once.")]
IdArgument = Annotated[int, typer.Argument(metavar="ID", help="The plan's number.", show_default=False)]


@app.command("plan")
def foresee(
    file: FileOption = None,
    drain: DrainOption = None,
    balance: BalanceOption = False,
    topic: TopicsOption = None,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what would be done; nothing is."""
    with ReassignmentClient(url) as client:
        preview = client.foresee(_new(file, drain, balance, topic))
    _show_preview(preview, output)


@app.command("start")
def start(
    file: FileOption = None,
    drain: DrainOption = None,
    balance: BalanceOption = False,
    topic: TopicsOption = None,
    throttle: ThrottleOption = None,
    parallel: ParallelOption = 5,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it is over.")] = False,
    yes: YesOption = False,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Begin to move partitions."""
    new = _new(file, drain, balance, topic)
    new = msgspec.structs.replace(new, throttle_bytes_per_second=throttle, parallel=parallel)
    with ReassignmentClient(url) as client:
        count = len(client.foresee(new).moves)
        if not count:
            raise Failure("nothing has to be moved")
        confirm(f"Move {count} partitions?", is_confirmed=yes)
        plan = client.make(new)
        while wait and not plan.is_over:
            time.sleep(_POLL_S)
            plan = client.get(plan.id)
    _show(plan, output)
    if wait and plan.state != "done":
        raise typer.Exit(1)


@app.command("status")
def status(
    id: Annotated[
        int | None,
        typer.Argument(metavar="[ID]", help="Of one plan, move by move; else all.", show_default=False),
    ] = None,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how far plans have come."""
    with ReassignmentClient(url) as client:
        if id is not None:
            _show_moves(client.get(id), output)
            return
        plans = client.all()
    if output is Output.TABLE and not plans:
        print("there are no plans")
        return
    rows = [(plan.id, plan.state, _counts(plan), plan.throttle_bytes_per_second) for plan in plans]
    show(plans, output, headings=("plan", "state", "moves", "throttle"), rows=rows)


@app.command("pause")
def pause(id: IdArgument, url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """Begin and copy nothing more for now."""
    with ReassignmentClient(url) as client:
        _show(client.pause(id), output)


@app.command("resume")
def resume(id: IdArgument, url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """Go on with a plan that is paused."""
    with ReassignmentClient(url) as client:
        _show(client.resume(id), output)


@app.command("cancel")
def cancel(
    id: IdArgument, yes: YesOption = False, url: UrlOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Give a plan up: what is on its way goes back, what is done stays."""
    confirm(f"Give plan {id} up?", is_confirmed=yes)
    with ReassignmentClient(url) as client:
        _show(client.cancel(id), output)


def _new(file: Path | None, drain: str | None, balance: bool, topics: list[str] | None) -> NewPlan:
    if sum((file is not None, drain is not None, balance or bool(topics))) != 1:
        raise typer.BadParameter("give one of --file, --drain and --balance (or --topic)")
    return NewPlan(
        plan=None if file is None else _read(file),
        drain=drain,
        balance=balance or bool(topics),
        topics=topics or None,
    )


def _read(file: Path) -> list[dict[str, object]]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[dict[str, object]])
    except OSError as error:
        raise Failure(f"{file} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Failure(f"{file} is not a plan: {error}") from error


def _show(plan: Plan, output: Output) -> None:
    show(plan, output, rows=[(f"plan {plan.id} is {plan.state}: {_counts(plan)}",)])


def _show_moves(plan: Plan, output: Output) -> None:
    if output is Output.TABLE:
        _show(plan, output)
    show(plan, output, headings=_MOVE_HEADINGS, rows=[_row(move) for move in plan.moves])


def _show_preview(preview: PlanPreview, output: Output) -> None:
    if output is not Output.TABLE:
        show(preview, output)
        return
    if not preview.moves:
        print("nothing has to be moved")
        return
    rows = [
        (move.topic, move.partition, ",".join(move.before), ",".join(move.after)) for move in preview.moves
    ]
    show(preview, output, headings=("topic", "partition", "before", "after"), rows=rows)
    print()
    shares = [
        (
            one.node,
            f"{one.replicas_before} -> {one.replicas_after}",
            f"{one.leaders_before} -> {one.leaders_after}",
            one.copied_bytes,
        )
        for one in preview.nodes
    ]
    show(preview, output, headings=("node", "replicas", "leaders", "bytes to copy"), rows=shares)
    for warning in preview.warnings:
        print(f"note: {warning}")


def _counts(plan: Plan) -> str:
    return ", ".join(f"{count} {state}" for state, count in plan.counts.items() if count) or "no moves"


def _row(move: PlanMove) -> tuple[object, ...]:
    return (
        move.topic,
        move.partition,
        move.state,
        ",".join(move.before),
        ",".join(move.after),
        ",".join(move.in_sync),
        move.records_left,
        move.percent,
        move.reason or None,
    )
