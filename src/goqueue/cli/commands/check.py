"""`goqueue check`: read every byte of a stopped broker's data folder and say what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from goqueue.cli.options import Failure, OutputOption
from goqueue.cli.output import Output, show
from goqueue.cli.progress import progress


def check(
    data_dir: Annotated[Path, typer.Argument(exists=True, file_okay=False, show_default=False)],
    output: OutputOption = Output.TABLE,
) -> None:
    """Verify a data folder while no broker uses it."""
    from goqueue.log.check import (
        check_folder,
    )  # with the log behind them, slow for commands that read no disk
    from goqueue.log.os_disk import OsDisk
    from goqueue.node.folder import DataFolder

    folder = DataFolder.lock(str(data_dir))
    try:
        with progress("checking"):
            report = check_folder(OsDisk(str(data_dir)))
    finally:
        folder.release()
    counts = {
        "partitions": report.partition_count,
        "segments": report.segment_count,
        "batches": report.batch_count,
        "records": report.record_count,
        "bytes": report.size_bytes,
    }
    rows: list[tuple[str, object]] = [*counts.items()]
    rows += [("note", note) for note in report.notes]
    rows += [("problem", problem) for problem in report.problems]
    show({**counts, "notes": report.notes, "problems": report.problems}, output, rows=rows)
    if report.problems:
        raise Failure(f"{data_dir} is damaged: {len(report.problems)} problems")
