"""Redrive: dead letters back to their topics in bulk, chosen by SQL, each once."""

from goqueue.pipeline.jobs.redrive.job import RedriveRequest, run
from goqueue.pipeline.jobs.redrive.letters import LETTER_COLUMNS, letters
from goqueue.pipeline.jobs.redrive.plan import chosen, runs, singles, summary

__all__ = ["LETTER_COLUMNS", "RedriveRequest", "chosen", "letters", "run", "runs", "singles", "summary"]
