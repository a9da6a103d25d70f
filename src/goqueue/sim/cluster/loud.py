"""What a node lives through although it cannot be is not lived through in a simulation: a seed that shows it is a find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from goqueue.log.cutting import CutRefused
from goqueue.node.partition import Partition
from goqueue.node.replication.following import Follower


@contextmanager
def loud() -> Iterator[None]:
    """A node whose leader lacks what is committed ends, rather than to keep that and wait for another leader."""

    def end(self: Follower, partition: Partition, error: CutRefused) -> None:
        raise error

    with patch.object(Follower, "_leave_whole", end):
        yield
