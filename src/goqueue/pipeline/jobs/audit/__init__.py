"""Audit: every record of a topic against a schema, and whether a new schema would break what is there."""

from goqueue.pipeline.jobs.audit.findings import find, tally
from goqueue.pipeline.jobs.audit.framing import Framing
from goqueue.pipeline.jobs.audit.job import AuditRequest, check, run
from goqueue.pipeline.jobs.audit.schemas import FileSchema, Schema, SchemaKind, SchemaSource

__all__ = [
    "AuditRequest",
    "FileSchema",
    "Framing",
    "Schema",
    "SchemaKind",
    "SchemaSource",
    "check",
    "find",
    "run",
    "tally",
]
