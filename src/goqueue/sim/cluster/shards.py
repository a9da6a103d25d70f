"""Internal topics with few partitions: fifty logs of each on every node take longer than they find."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from goqueue.node import internal_topics

_NAME = "PARTITION_COUNT"


@contextmanager
def few_shards(count: int) -> Iterator[None]:
    """Wherever nodes know how many there are."""
    usual = internal_topics.PARTITION_COUNT
    with ExitStack() as stack:
        for name, module in sorted(sys.modules.items()):
            if name.startswith("goqueue.node.") and vars(module).get(_NAME) == usual:
                stack.enter_context(patch.object(module, _NAME, count))
        yield
