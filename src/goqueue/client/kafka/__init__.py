"""A blocking Kafka client for bulk work: batches in, batches out, never a record."""

from goqueue.client.kafka.cluster import KafkaCluster as KafkaCluster
from goqueue.client.kafka.errors import KafkaError as KafkaError
from goqueue.client.kafka.errors import NotUnderstood as NotUnderstood
from goqueue.client.kafka.errors import OffsetOutOfRange as OffsetOutOfRange
from goqueue.client.kafka.errors import Unreachable as Unreachable
from goqueue.client.kafka.fetching import Fetched as Fetched
from goqueue.client.kafka.joint import AlreadyCommitted as AlreadyCommitted
from goqueue.client.kafka.joint import Enrolled as Enrolled
from goqueue.client.kafka.offsets import EARLIEST as EARLIEST
from goqueue.client.kafka.offsets import LATEST as LATEST
from goqueue.client.kafka.producer_ids import ProducerIdentity as ProducerIdentity
from goqueue.client.kafka.producing import BatchSender as BatchSender
from goqueue.client.kafka.security import Security as Security
