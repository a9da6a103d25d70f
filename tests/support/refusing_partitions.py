"""A disk that takes no writes of one partition."""

from __future__ import annotations

from goqueue.log.batch import BatchHeader
from goqueue.model.errors import StorageError
from goqueue.node.partition import Partition, Stored


class Refusing:
    """Stands in for a disk that takes no writes of a partition until it is well."""

    def __init__(self, partition: Partition) -> None:
        self._append = partition.append
        self.is_well = False
        self.refused_count = 0
        partition.append = self.append  # type: ignore[method-assign]  # as the class says

    def append(self, batch: bytes, header: BatchHeader, *, now_ms: int) -> Stored:
        if not self.is_well:
            self.refused_count += 1
            raise StorageError("the disk takes no writes")
        return self._append(batch, header, now_ms=now_ms)
