"""Traces: latencies per hop and end to end, slow messages, retry storms and deaths, from exports and from topics."""

from goqueue.pipeline.jobs.traces.job import TracesRequest, run
from goqueue.pipeline.jobs.traces.journeys import hops, journeys, latencies, placed, storms
from goqueue.pipeline.jobs.traces.lines import events_of, line_counts, read_lines
from goqueue.pipeline.jobs.traces.topics import deaths, topic_hops, topic_journeys, traced

__all__ = [
    "TracesRequest",
    "deaths",
    "events_of",
    "hops",
    "journeys",
    "latencies",
    "line_counts",
    "placed",
    "read_lines",
    "run",
    "storms",
    "topic_hops",
    "topic_journeys",
    "traced",
]
