"""Spans into tasks. A task of Spark costs a tenth of a second before its first row, so there are few and fat ones.

The spans, laid end to end in the order of their partitions, are cut into pieces of equal size. So every task has the same
number of offsets, a small partition does not cost a task, and a large one is read by several. Where partitions are to stay
whole, each goes to the task that has the least so far, the largest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from goqueue.pipeline.errors import OptionError
from goqueue.pipeline.source.declared import TASKS_MAX
from goqueue.pipeline.source.options import Sizes
from goqueue.pipeline.span import Span

TASK_RECORDS = 500_000  # about half a second of a core
TASKS_USUAL_MAX = 256  # beyond it, tasks grow


def plan(spans: Sequence[Span], sizes: Sizes) -> list[tuple[Span, ...]]:
    """One tuple of spans for each task; none if there is nothing to read."""
    total = sum(span.size for span in spans)
    if not total:
        return []
    count = _task_count(total, sizes)
    return _packed(spans, count) if sizes.keeps_whole else _cut(spans, total, count)


def _task_count(total: int, sizes: Sizes) -> int:
    tasks_max = max(sizes.tasks_max or TASKS_USUAL_MAX, sizes.tasks_min)
    count = min(max(_ceil(total, TASK_RECORDS), sizes.tasks_min), tasks_max)
    if sizes.records_max is not None:
        count = max(count, _ceil(total, sizes.records_max))
        if count > TASKS_MAX:
            raise OptionError(
                f"maxRecordsPerPartition {sizes.records_max} cuts {total} offsets into {count} tasks; there are at most "
                f"{TASKS_MAX}: raise it, or read less at a time"
            )
    return min(count, total)


def _cut(spans: Sequence[Span], total: int, count: int) -> list[tuple[Span, ...]]:
    tasks: list[list[Span]] = [[] for _ in range(count)]
    index = done = 0
    for span in spans:
        start = span.start
        while start < span.end:
            border = total * (index + 1) // count
            end = min(span.end, start + border - done)
            tasks[index].append(Span(span.topic, span.partition, start, end))
            done += end - start
            start = end
            if done == border:
                index += 1
    return [tuple(task) for task in tasks]


def _packed(spans: Sequence[Span], count: int) -> list[tuple[Span, ...]]:
    there = sorted((span for span in spans if span.size), key=lambda span: span.size, reverse=True)
    tasks: list[list[Span]] = [[] for _ in range(min(count, len(there)))]
    loads = [(0, index) for index in range(len(tasks))]
    for span in there:
        load, index = heappop(loads)
        tasks[index].append(span)
        heappush(loads, (load + span.size, index))
    return [tuple(task) for task in tasks]


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
