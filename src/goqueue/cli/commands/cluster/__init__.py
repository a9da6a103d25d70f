"""`goqueue cluster`: look at a cluster, and tell its nodes who shall lead. Any node can be asked."""

from __future__ import annotations

import typer

from goqueue.cli.commands.cluster import orders, reassign, views

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Look at the cluster, drain nodes, balance leaders."
)
app.command("info")(views.info)
app.command("nodes")(views.nodes)
app.command("health")(views.health)
app.command("drain")(orders.drain)
app.command("undrain")(orders.undrain)
app.command("rebalance")(orders.rebalance)
app.add_typer(reassign.app, name="reassign")
