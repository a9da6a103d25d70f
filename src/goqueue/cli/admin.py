"""The `goqueue-admin` command: what those do who look after brokers. What `goqueue` has, too, is the same commands under another name."""

from __future__ import annotations

from goqueue.cli.commands.cluster import reassign
from goqueue.cli.entry import new_app, run_app

app = new_app("goqueue-admin", "What those do who look after brokers.")
app.add_typer(reassign.app, name="reassign")


def run() -> None:
    run_app(app, "goqueue-admin")


if __name__ == "__main__":
    run()
