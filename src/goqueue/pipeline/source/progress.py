"""A stream's progress as a consumer group's offsets, so that tools which show lag show it.

Spark's checkpoint is the truth and these are never read back. So a commit that fails is warned of once and costs the query nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from goqueue.client.kafka.errors import KafkaError
from goqueue.pipeline.connection import Connection
from goqueue.pipeline.source.offsets import positions
from goqueue.pipeline.source.options import SourceOptions

LOG = logging.getLogger("goqueue.pipeline.source")
TIMEOUT_S_MAX = 5.0
SKIPPED_AFTER_FAILURE = 10  # commits that are not tried then, so that a stream is not held up by each


class GroupCommits(Protocol):
    """What is needed of a cluster."""

    def commit_group(self, group_id: str, offsets: Mapping[tuple[str, int], int]) -> None: ...

    def close(self) -> None: ...


Connect: TypeAlias = Callable[[Connection], GroupCommits]


def connect_briefly(connection: Connection) -> GroupCommits:
    from goqueue.pipeline.source.network import connect  # only where there is a group

    return connect(connection, timeout_s=min(TIMEOUT_S_MAX, connection.timeout_s))


class Progress:
    """Publishes nothing unless the options name a group."""

    def __init__(self, options: SourceOptions, connect: Connect = connect_briefly) -> None:
        self._group_id = options.group_id
        self._connection = options.access.connection
        self._connect = connect
        self._cluster: GroupCommits | None = None
        self._published: dict[tuple[str, int], int] = {}
        self._skip_count = 0
        self._has_warned = False

    def publish(self, offset: Mapping[str, object]) -> None:
        """The end of a batch that is done."""
        at: dict[tuple[str, int], int] = {
            (place.topic, place.partition): end for place, end in positions(offset).items()
        }
        if self._group_id is None or self._connection is None or at == self._published:
            return
        if self._skip_count:
            self._skip_count -= 1
            return
        try:
            self._cluster = self._cluster or self._connect(self._connection)
            self._cluster.commit_group(self._group_id, at)
            self._published = at
        except (KafkaError, OSError) as error:
            self._skip_count = SKIPPED_AFTER_FAILURE
            if not self._has_warned:
                self._has_warned = True
                LOG.warning("the progress of group %s is not shown: %s", self._group_id, error)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
