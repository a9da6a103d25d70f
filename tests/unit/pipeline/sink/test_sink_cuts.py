"""How the rows of a partition are divided into batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from goqueue.pipeline.sink.outlet import cuts


@given(st.lists(st.integers(1, 300), min_size=1, max_size=200), st.integers(1, 1_000))
def test_stretches_follow_each_other_and_fit_unless_a_row_is_too_large_alone(
    sizes: list[int], bytes_max: int
) -> None:
    found = cuts(np.array(sizes, np.int64), bytes_max)
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == len(sizes)
    for start, end in found:
        assert end > start
        assert sum(sizes[start:end]) <= bytes_max or end == start + 1


def test_rows_are_divided_about_equally() -> None:
    found = cuts(np.full(110, 10, np.int64), 1_000)
    assert len(found) == 2
    assert {end - start for start, end in found} <= {54, 55, 56}
