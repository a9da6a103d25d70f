"""`goqueue version`."""

from __future__ import annotations

import platform

from goqueue import __version__
from goqueue.cli.options import OutputOption
from goqueue.cli.output import Output, show


def version(output: OutputOption = Output.TABLE) -> None:
    """Print the version of this program."""
    facts = {"goqueue": __version__, "python": platform.python_version()}
    show(facts, output, rows=facts.items())
