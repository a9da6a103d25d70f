"""`goqueue pipeline`: jobs over bulk data and declarative pipelines, on Spark."""

from __future__ import annotations

import typer

from goqueue.cli.commands.pipeline import (
    archive,
    audit,
    backup,
    compact,
    plan,
    redrive,
    replay,
    reshard,
    restore,
    run,
    status,
    stop,
    traces,
    usage,
    validate,
)

app = typer.Typer(no_args_is_help=True, help="Run jobs and pipelines over topics, on Spark.")
app.command("archive")(archive.archive)
app.command("replay")(replay.replay)
app.command("reshard")(reshard.reshard)
app.command("run")(run.run)
app.command("validate")(validate.validate)
app.command("plan")(plan.plan)
app.command("status")(status.status)
app.command("stop")(stop.stop)
app.command("redrive")(redrive.redrive)
app.command("audit")(audit.audit)
app.command("usage")(usage.usage)
app.command("traces")(traces.traces)
app.command("compact")(compact.compact)
app.add_typer(backup.app, name="backup")
app.command("restore")(restore.restore)
