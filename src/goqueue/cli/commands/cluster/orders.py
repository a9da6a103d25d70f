"""Who shall lead: orders to the cluster."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from goqueue.cli.options import Failure, OutputOption, UrlOption, YesOption, confirm
from goqueue.cli.output import Output, show
from goqueue.client.cluster_views import ClusterNode
from goqueue.client.rest import RestClient

_POLL_S = 0.2

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="The node's name.", show_default=False)]


def drain(
    node: NodeArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it leads nothing any more.")] = False,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for that.")] = 60.0,
    yes: YesOption = False,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Let others lead what a node leads, until `undrain`. It keeps its replicas."""
    confirm(f"Let others lead all partitions that {node} leads?", is_confirmed=yes)
    with RestClient(url) as client:
        drained = client.drain_node(node)
        if wait:
            drained = _until_it_leads_nothing(client, drained, timeout)
    show(drained, output, rows=[(_sentence(drained),)])


def undrain(
    node: NodeArgument, yes: YesOption = False, url: UrlOption = "", output: OutputOption = Output.TABLE
) -> None:
    """Let a drained node lead again."""
    confirm(f"Let {node} lead partitions again?", is_confirmed=yes)
    with RestClient(url) as client:
        found = client.undrain_node(node)
    show(found, output, rows=[(_sentence(found),)])


def rebalance(yes: YesOption = False, url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """Give partitions back to their preferred leaders, where these are in sync."""
    confirm("Give all partitions back to their preferred leaders?", is_confirmed=yes)
    with RestClient(url) as client:
        done = client.rebalance()
    if output is Output.TABLE and not done.moved:
        print("nothing to do: every partition is led as it should be, or cannot be yet")
        return
    rows = [(one.topic, one.partition, one.leader) for one in done.moved]
    show(done, output, headings=("topic", "partition", "leader"), rows=rows)


def _until_it_leads_nothing(client: RestClient, node: ClusterNode, timeout_s: float) -> ClusterNode:
    deadline_s = time.monotonic() + timeout_s
    while node.leader_count:
        if time.monotonic() >= deadline_s:
            raise Failure(
                f"{node.name} still leads {node.leader_count} partitions after {timeout_s:g} s; "
                "nobody else is in sync with them, or no other has a replica"
            )
        time.sleep(_POLL_S)
        found = [one for one in client.cluster_nodes() if one.name == node.name]
        if not found:
            raise Failure(f"{node.name} is not in the cluster any more")
        node = found[0]
    return node


def _sentence(node: ClusterNode) -> str:
    return f"{node.name} is {node.state} and leads {node.leader_count} partitions"
