"""`goqueue cluster`: look at a cluster, and tell its nodes who shall lead. Any node can be asked."""

from __future__ import annotations

import typer

from goqueue.cli.commands.cluster import orders, reassign, views, voters

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look at the cluster, drain nodes, balance leaders, move partitions, change voters.",
)
app.command("info")(views.info)
app.command("nodes")(views.nodes)
app.command("health")(views.health)
app.command("drain")(orders.drain)
app.command("undrain")(orders.undrain)
app.command("rebalance")(orders.rebalance)
app.command("remove")(voters.remove_node)
app.add_typer(voters.app, name="voters")
app.add_typer(reassign.app, name="reassign")
