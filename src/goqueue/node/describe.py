"""What tools ask about the inside of a node: the producers of a partition, and the room on the disk."""

from __future__ import annotations

from goqueue.log.disk import Disk, Usage
from goqueue.node.guard import Guard
from goqueue.node.producer_facts import ProducerFacts
from goqueue.node.threads import Threads
from goqueue.node.topic_table import TopicTable


class Describer:
    def __init__(self, table: TopicTable, guard: Guard, disk: Disk, threads: Threads) -> None:
        self._table = table
        self._guard = guard
        self._disk = disk
        self._threads = threads

    def producers(self, topic: str, partition: int) -> list[ProducerFacts]:
        """Those that the partition remembers, in order of last use."""
        self._guard.admit_read()
        return self._table.get(topic).partition(partition).producers()

    async def disk_usage(self) -> Usage | None:
        """None if the disk cannot tell."""
        self._guard.admit_read()
        try:
            return await self._threads.run(self._disk.usage)
        except OSError:
            return None
