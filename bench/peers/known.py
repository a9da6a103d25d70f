"""The peers of a run, in the order in which a round measures them."""

from __future__ import annotations

from bench.peers.apache_kafka import ApacheKafka
from bench.peers.mock_cluster import MockCluster
from bench.peers.ours import Ours
from bench.peers.peer import Peer

OURS = Ours()
APACHE_KAFKA = ApacheKafka()
MOCK = MockCluster()
PEERS: tuple[Peer, ...] = (APACHE_KAFKA, MOCK)
