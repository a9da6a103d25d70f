"""`goqueue pipeline status`: who runs a pipeline, and how far it is."""

from __future__ import annotations

import msgspec

from goqueue.cli.commands.pipeline.common import check_installed
from goqueue.cli.commands.pipeline.run import FileArgument, definitions_of
from goqueue.cli.options import OutputOption
from goqueue.cli.output import Output, show


def status(file: FileArgument, output: OutputOption = Output.TABLE) -> None:
    """Show whether a pipeline runs, and the last batch of each query."""
    check_installed()
    from goqueue.pipeline.declarative.state import is_running, read_run

    definition = definitions_of([file], None)[0]
    run = read_run(definition.checkpoint)
    is_alive = is_running(definition.checkpoint)
    if run is None:
        show(
            {"pipeline": definition.spec.name, "state": "never run"},
            output,
            rows=[(definition.spec.name, "never run")],
        )
        return
    state = run.state if is_alive or run.is_over else "died"
    value = {**msgspec.to_builtins(run), "state": state, "is_running": is_alive}
    if output is not Output.TABLE:
        show(value, output)
        return
    facts: list[tuple[str, object]] = [
        ("pipeline", run.pipeline),
        ("state", state),
        ("process", f"{run.pid} on {run.host}"),
    ]
    facts += [("started", run.started_at), ("updated", run.updated_at)]
    facts += [
        (name, text) for name, text in (("reason", run.reason), ("metrics", run.metrics)) if text is not None
    ]
    show(value, output, rows=facts)
    print()
    rows = [
        (
            name,
            query.state if is_alive or query.state != "running" else "died",
            query.batch_id,
            query.rows_in_total,
            query.rows_out_total,
            query.duration_ms,
            sum(query.lag.values()) if query.lag else None,
            query.at,
        )
        for name, query in run.queries.items()
    ]
    headings = ("query", "state", "batch", "rows in", "rows out", "ms", "lag", "last batch at")
    show(value, output, headings=headings, rows=rows)
