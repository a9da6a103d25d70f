"""What the pipeline refuses: one sentence that names the value and says what would be right."""

from __future__ import annotations


class PipelineError(Exception):
    """An expected error of a job, an option or a topic."""


class OptionError(PipelineError):
    """An option is unknown, misspelt, contradicts another or has a value that it cannot have."""


class DataLoss(PipelineError):
    """Records that the query was to read are gone: aged out, deleted, or in a damaged segment."""


class BadRow(PipelineError):
    """A row cannot be written to a topic."""
