"""`goqueue topic`: create, list, describe, alter, scale, delete, and how their partitions change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from goqueue.cli.options import OutputOption, UrlOption, YesOption, confirm, parse_pairs
from goqueue.cli.output import Output, show
from goqueue.client.rest import RestClient
from goqueue.client.scaling import scaling_status

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Create, look at, change and delete topics."
)

NameArgument = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A setting, such as retention.ms=60000."),
]


@app.command()
def create(
    name: NameArgument,
    partitions: Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="How many.")] = None,
    replication: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="On how many nodes each of them is."),
    ] = None,
    config: ConfigOption = None,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a topic."""
    settings = parse_pairs(config or [], "setting")
    with RestClient(url) as client:
        created = client.create_topic(
            name, partition_count=partitions, replication_factor=replication, config=settings
        )
    show(created, output, rows=[(f"created {created.name} with {created.partitions} partitions",)])


@app.command("list")
def list_topics(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """List all topics."""
    with RestClient(url) as client:
        topics = client.topics()
    rows = [(topic.name, topic.partitions, topic.created) for topic in topics]
    show(topics, output, headings=("topic", "partitions", "created"), rows=rows)


@app.command()
def describe(name: NameArgument, url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """Show a topic's settings and partitions."""
    with RestClient(url) as client:
        topic, partitions = client.topic(name), client.partitions(name)
    if output is not Output.TABLE:
        show({"topic": topic, "partitions": partitions}, output)
        return
    facts = {
        "topic": topic.name,
        "created": topic.created,
        "messages": topic.total_messages,
        "bytes": topic.total_size_bytes,
    }
    show(topic, output, rows=facts.items())
    print()
    headings = ("partition", "leader", "in sync", "epoch", "earliest", "high watermark", "bytes", "failure")
    rows = [
        (
            p.partition,
            p.leader,
            ",".join(p.isr),
            p.epoch,
            p.earliest,
            p.high_watermark,
            p.size_bytes,
            p.failure,
        )
        for p in partitions
    ]
    show(partitions, output, headings=headings, rows=rows)
    print()
    settings = [
        (name, value, "topic" if name in topic.overrides else "default")
        for name, value in topic.config.items()
    ]
    show(topic.config, output, headings=("setting", "value", "set by"), rows=settings)


@app.command()
def alter(
    name: NameArgument,
    config: ConfigOption = None,
    unset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Return a setting to its default.")
    ] = None,
    yes: YesOption = False,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Change a topic's settings."""
    changes: dict[str, str | None] = {**parse_pairs(config or [], "setting"), **dict.fromkeys(unset or [])}
    if not changes:
        raise typer.BadParameter("nothing to change; give --config NAME=VALUE or --unset NAME")
    confirm(f"Change {', '.join(changes)} of topic {name}?", is_confirmed=yes)
    with RestClient(url) as client:
        client.alter_topic(name, changes)
    show({"altered": name}, output, rows=[(f"altered {name}",)])


@app.command()
def scale(
    name: NameArgument,
    partitions: Annotated[int, typer.Argument(metavar="PARTITIONS", min=1, show_default=False)],
    discard_read: Annotated[
        bool,
        typer.Option(
            "--discard-read",
            help="Partitions go with their messages as soon as every group has read them, and not only when retention has emptied "
            "them.",
        ),
    ] = False,
    yes: YesOption = False,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Give a topic more partitions or, if it has scaling=keyed, fewer.

    With scaling=keyed every group goes on to read each key in order. Without, keys may belong to another partition."""
    what_goes = (
        " What the partitions that go hold is deleted when every group that there is has read it."
        if discard_read
        else ""
    )
    question = f"Change the number of partitions of topic {name} to {partitions}?{what_goes}"
    confirm(question, is_confirmed=yes)
    with RestClient(url) as client:
        scaled = client.scale_topic(name, partitions, discard_read=discard_read)
    what = "has" if scaled.partitions_added > 0 else "will have"
    show(scaled, output, rows=[(f"{name} {what} {scaled.new_count} partitions",)])


@app.command()
def delete(
    name: NameArgument, yes: YesOption = False, url: UrlOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Delete a topic and all its messages."""
    confirm(f"Delete topic {name} and all its messages?", is_confirmed=yes)
    with RestClient(url) as client:
        client.delete_topic(name)
    show({"deleted": name}, output, rows=[(f"deleted {name}",)])


@app.command()
def scaling(name: NameArgument, url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """Show how far a change of a topic's partitions has come, and what it waits for."""
    status = scaling_status(url, name)
    if output is not Output.TABLE:
        show(status, output)
        return
    facts: dict[str, object] = {
        "topic": status.name,
        "status": status.status,
        "partitions": f"{status.partitions_ready} of {status.partitions} are ready",
    }
    keyed = status.keyed
    if keyed is not None:
        facts |= {
            "stage": keyed.stage,
            "keys are spread over": f"{keyed.key_count} partitions, before that {keyed.old_count}",
            "not fenced yet": _listed(keyed.unfenced),
            "held": _listed(f"{hold.partition} from {hold.offset} on" for hold in keyed.holds),
            "groups to give up partitions": _listed(keyed.unsettled),
            "nodes that do not answer": _listed(keyed.unanswered),
            "not empty yet": _listed(keyed.undrained),
            "what is read may go": keyed.discard_read or None,
        }
    show(status, output, rows=facts.items())
    if keyed is not None and keyed.gates:
        print()
        rows = [
            (gate.blocked, gate.behind, gate.until, one.group, one.committed, one.has_members)
            for gate in keyed.gates
            for one in gate.groups
        ]
        headings = ("partition", "is given after", "is read to", "by group", "which is at", "has members")
        show(keyed.gates, output, headings=headings, rows=rows)


def _listed(values: Iterable[object]) -> str | None:
    return ", ".join(map(str, values)) or None
