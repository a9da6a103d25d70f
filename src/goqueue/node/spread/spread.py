"""The use cases that concern several nodes, put together; a node alone does them by itself."""

from __future__ import annotations

from typing import NamedTuple

from goqueue.node.forwarding import Forwarding
from goqueue.node.groups.groups import Groups
from goqueue.node.ids import Ids
from goqueue.node.other_nodes import OtherNodes
from goqueue.node.positions import Positions
from goqueue.node.publish import Publisher
from goqueue.node.queue.led_ledgers import LedgersAsked
from goqueue.node.queue.queue import Queue
from goqueue.node.read import Reader
from goqueue.node.spread.group_configs import GroupConfigs
from goqueue.node.spread.group_places import GroupPlaces
from goqueue.node.spread.polling import QueuePolls, SpreadPolling
from goqueue.node.spread.publishing import Publishing, SpreadPublisher
from goqueue.node.spread.reading import PartitionsSeen, Reading, SpreadReader
from goqueue.node.spread.receipts import Receiving, SpreadReceipts
from goqueue.node.topic_table import TopicTable
from goqueue.node.topics import Topics


class UseCases(NamedTuple):
    """Of this node alone."""

    publisher: Publisher
    reader: Reader
    queue: Queue
    groups: Groups
    topics: Topics
    table: TopicTable
    positions: Positions
    ledgers: LedgersAsked


class Spread:
    def __init__(
        self,
        here: UseCases,
        forwarding: Forwarding | None,
        nodes: OtherNodes | None,
        ids: Ids,
        *,
        count_max: int,
    ) -> None:
        self.publishing: Publishing = here.publisher  # to partitions of any node
        self.receipts: Receiving = here.queue
        self.queue_polls: QueuePolls = here.queue
        self.reading: Reading = here.reader
        self.partitions_seen = PartitionsSeen(here.topics, here.table, forwarding, nodes)
        self.group_places = GroupPlaces(
            here.queue, here.ledgers, self.partitions_seen, here.positions, forwarding, nodes
        )
        self.group_configs = GroupConfigs(here.groups, forwarding, nodes)
        if forwarding is None or nodes is None:
            return
        self.publishing = SpreadPublisher(here.publisher, forwarding, nodes)
        self.reading = SpreadReader(here.reader, forwarding, nodes)
        self.receipts = SpreadReceipts(here.queue, forwarding, nodes, count_max=count_max)
        self.queue_polls = SpreadPolling(here.queue, self.receipts, forwarding, nodes, ids)
