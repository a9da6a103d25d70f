"""What there is to see of a cluster."""

from __future__ import annotations

import typer

from goqueue.cli.options import OutputOption, UrlOption
from goqueue.cli.output import Output, show
from goqueue.client.cluster_views import ClusterHealth, ClusterNode
from goqueue.client.rest import RestClient

_HEADINGS = (
    "node",
    "number",
    "status",
    "state",
    "role",
    "leads",
    "replicas",
    "rack",
    "http",
    "kafka",
    "version",
    "level",
    "heard ms ago",
)


def info(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """Show which cluster it is, who is its controller, and how it is."""
    with RestClient(url) as client:
        state, health, nodes = client.cluster_state(), client.cluster_health(), client.cluster_nodes()
    if output is not Output.TABLE:
        show({"state": state, "health": health, "nodes": nodes}, output)
        return
    facts = {
        "cluster": state.cluster_id,
        "controller": health.controller,
        "term": state.term,
        "voters": ",".join(state.voters),
        "feature level": state.level,
        "nodes": len(nodes),
        "asked node": f"{state.node} ({state.role})",
        "metadata applied": f"{state.applied_index} of {state.last_index}",
        **_facts(health),
    }
    show(state, output, rows=facts.items())


def nodes(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """List the nodes of the cluster."""
    with RestClient(url) as client:
        found = client.cluster_nodes()
    show(found, output, headings=_HEADINGS, rows=[_row(node) for node in found])


def health(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """Say whether all is well; exit code 1 if it is not."""
    with RestClient(url) as client:
        found = client.cluster_health()
    show(found, output, rows=_facts(found).items())
    if found.voters_not_counting:
        names = ", ".join(found.voters_not_counting)
        typer.echo(
            f"not counted when something is decided: {names}, not heard of or without its metadata after a loss; "
            "take no other node down before this is ok",
            err=True,
        )
    if not found.is_well:
        raise typer.Exit(1)


def _facts(health: ClusterHealth) -> dict[str, object]:
    voters = health.voters_not_counting
    return {
        "status": health.status,
        "partitions without leader": health.partitions_without_leader,
        "partitions short of replicas": health.partitions_short_of_replicas,
        "fenced nodes": ",".join(health.nodes_fenced) or None,
        "voters that do not count": "not known" if voters is None else ",".join(voters) or None,
    }


def _row(node: ClusterNode) -> tuple[object, ...]:
    role = "controller" if node.is_controller else "voter" if node.is_voter else "observer"
    return (
        node.name,
        node.number,
        node.status,
        node.state,
        role,
        node.leader_count,
        node.replica_count,
        node.rack or None,
        node.endpoints.http or None,
        node.endpoints.kafka or None,
        node.version,
        node.level,
        node.last_heard_ms,
    )
