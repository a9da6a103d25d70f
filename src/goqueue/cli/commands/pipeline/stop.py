"""`goqueue pipeline stop`: ask the process that runs a pipeline to end it."""

from __future__ import annotations

from typing import Annotated

import typer

from goqueue.cli.commands.pipeline.common import check_installed
from goqueue.cli.commands.pipeline.run import FileArgument, definitions_of
from goqueue.cli.options import Failure


def stop(
    file: FileArgument,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, max=3_600, help="Seconds to wait for the end.")
    ] = 60.0,
) -> None:
    """Stop a running pipeline after its batch, and wait until it has."""
    check_installed()
    from goqueue.pipeline.declarative.state import ask_to_stop, is_running

    definition = definitions_of([file], None)[0]
    name = definition.spec.name
    if not is_running(definition.checkpoint):
        print(f"{name} is not running")
        return
    if not ask_to_stop(definition.checkpoint, timeout_s=timeout):
        raise Failure(f"{name} was asked to stop and has not ended within {timeout:g} s; it will")
    print(f"{name} has stopped")
