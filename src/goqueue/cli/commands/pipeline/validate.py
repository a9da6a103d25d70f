"""`goqueue pipeline validate`: everything that can be wrong with a pipeline file, without a broker."""

from __future__ import annotations

from goqueue.cli.commands.pipeline.common import ConfOption, MasterOption, RemoteOption, check_installed
from goqueue.cli.commands.pipeline.run import FilesArgument, definitions_of, session_for
from goqueue.cli.options import Failure
from goqueue.cli.output import print_error


def validate(
    files: FilesArgument, master: MasterOption = None, remote: RemoteOption = None, conf: ConfOption = None
) -> None:
    """Check pipeline files: structure, names, SQL, schemas. All problems are listed."""
    check_installed()
    from goqueue.pipeline.declarative.tables import build
    from goqueue.pipeline.errors import PipelineError

    definitions = definitions_of(files, None)
    is_right = True
    with session_for(definitions, master, remote, conf, is_short=True) as spark:
        for definition in definitions:
            try:
                built = build(spark.newSession(), definition)
            except PipelineError as error:
                is_right = False
                for line in str(error).splitlines():
                    print_error(line)
            else:
                print(
                    f"{definition.file}: pipeline {definition.spec.name} is right; {len(built.queries)} queries"
                )
    if not is_right:
        raise Failure("not every pipeline can be run as it is")
