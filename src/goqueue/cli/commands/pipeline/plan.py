"""`goqueue pipeline plan`: what a run would do, and where it would go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from goqueue.cli.commands.pipeline.common import ConfOption, MasterOption, RemoteOption, check_installed
from goqueue.cli.commands.pipeline.run import BootstrapOverride, FileArgument, definitions_of, session_for
from goqueue.cli.options import OutputOption
from goqueue.cli.output import Output, show

if TYPE_CHECKING:
    from goqueue.pipeline.declarative.planning import QueryPlan


def plan(
    file: FileArgument,
    bootstrap: BootstrapOverride = None,
    output: OutputOption = Output.TABLE,
    master: MasterOption = None,
    remote: RemoteOption = None,
    conf: ConfOption = None,
) -> None:
    """Show the queries of a pipeline: inputs, columns, triggers, checkpoints, offsets and lag. Nothing is run."""
    check_installed()
    from goqueue.pipeline.declarative.planning import plan as plan_pipeline

    definitions = definitions_of([file], bootstrap)
    with session_for(definitions, master, remote, conf, is_short=True) as spark:
        plans = plan_pipeline(spark.newSession(), definitions[0])
    value = {"pipeline": definitions[0].spec.name, "queries": msgspec.to_builtins(plans)}
    if output is not Output.TABLE:
        show(value, output)
        return
    for number, query in enumerate(plans, 1):
        print(f"{number}. {query.name}")
        show(value, output, rows=_facts(query))
        if query.stretches:
            rows = [(part.topic, part.partition, part.start, part.end, part.lag) for part in query.stretches]
            show(value, output, headings=("topic", "partition", "from", "end", "lag"), rows=rows)
        print()


def _facts(query: QueryPlan) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [("kind", query.kind), *(("reads", part) for part in query.inputs)]
    facts += [("writes", f"{query.output} ({query.mode})"), ("columns", query.columns)]
    if query.checkpoint is not None:
        goes_on = "new" if query.batch_id is None else f"goes on with batch {query.batch_id}"
        facts += [("trigger", query.trigger), ("checkpoint", f"{query.checkpoint} ({goes_on})")]
    return facts + ([("note", query.note)] if query.note is not None else [])
