"""Small items share a task, large ones have their own, and results come back in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from goqueue.pipeline.tasks import run_bundles

T = TypeVar("T")
R = TypeVar("R")
MB = 1024 * 1024


def test_results_are_in_the_order_of_the_items_whatever_shared_a_task() -> None:
    task_count = 0

    def runner(work: Callable[[T], R], items: Sequence[T], /) -> list[R]:
        nonlocal task_count
        task_count = len(items)
        return [work(item) for item in items]

    sizes = [0] * 57 + [500 * MB, 40 * MB, 200 * MB, 30 * MB]
    assert run_bundles(runner, str, range(61), sizes) == [str(index) for index in range(61)]
    assert task_count == 4  # 500; 200; 40; 30 with all the small ones
    assert run_bundles(runner, str, [], []) == []
    assert task_count == 0
