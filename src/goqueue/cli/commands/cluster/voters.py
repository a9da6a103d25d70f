"""`goqueue cluster voters`: who decides. `goqueue cluster remove`: who belongs to the cluster no more."""

from __future__ import annotations

import typer

from goqueue.cli.commands.cluster.orders import NodeArgument
from goqueue.cli.options import OutputOption, UrlOption, YesOption, confirm
from goqueue.cli.output import Output, show
from goqueue.client.cluster_views import Voters
from goqueue.client.rest import RestClient

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show and change which nodes take part in decisions."
)


@app.command("list")
def list_voters(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """List the nodes that decide."""
    with RestClient(url) as client:
        found = client.voters()
    rows = [(name, "controller" if name == found.controller else "voter") for name in found.voters]
    show(found, output, headings=("node", "role"), rows=rows)


@app.command("add")
def add(
    node: NodeArgument, yes: YesOption = False, url: UrlOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Let a node that has caught up take part in every decision."""
    confirm(f"Let {node} take part in every decision of the cluster?", is_confirmed=yes)
    with RestClient(url) as client:
        _show(client.add_voter(node), output)


@app.command("remove")
def remove(
    node: NodeArgument, yes: YesOption = False, url: UrlOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Let a node decide nothing any more. It stays in the cluster and keeps its replicas."""
    confirm(f"Let {node} take part in no decision of the cluster any more?", is_confirmed=yes)
    with RestClient(url) as client:
        _show(client.remove_voter(node), output)


def remove_node(
    node: NodeArgument, yes: YesOption = False, url: UrlOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Take a node out of the cluster for good: one that is stopped, holds no replicas and does not vote."""
    confirm(f"Take {node} out of the cluster?", is_confirmed=yes)
    with RestClient(url) as client:
        left = client.remove_node(node)
    names = ", ".join(one.name for one in left)
    show(left, output, rows=[(f"{node} is out of the cluster; it has {len(left)} nodes: {names}",)])


def _show(voters: Voters, output: Output) -> None:
    show(voters, output, rows=[(f"the voters are {', '.join(voters.voters)}",)])
