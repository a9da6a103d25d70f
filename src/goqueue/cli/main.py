"""The `goqueue` command. Each family of commands is a module of `goqueue.cli.commands`."""

from __future__ import annotations

from goqueue.cli.commands import check, cluster, config, consume, pipeline, produce, serve, topic, version
from goqueue.cli.entry import new_app, run_app

app = new_app("goqueue", "One broker that is a log and a queue.")
app.command("serve")(serve.serve)
app.add_typer(topic.app, name="topic")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("check")(check.check)
app.add_typer(cluster.app, name="cluster")
app.add_typer(config.app, name="config")
app.add_typer(pipeline.app, name="pipeline")
app.command("version")(version.version)


def run() -> None:
    run_app(app, "goqueue")


if __name__ == "__main__":
    run()
