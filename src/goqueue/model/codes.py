"""The stable code of every error, and the one table that says how it looks on HTTP, gRPC and Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_NAME = "INVALID_NAME"
    INVALID_SETTING = "INVALID_SETTING"
    INVALID_BATCH = "INVALID_BATCH"
    CORRUPT_BATCH = "CORRUPT_BATCH"
    UNSUPPORTED_COMPRESSION = "UNSUPPORTED_COMPRESSION"
    ROUTE_NOT_FOUND = "ROUTE_NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND"
    PARTITION_NOT_FOUND = "PARTITION_NOT_FOUND"
    TOPIC_EXISTS = "TOPIC_EXISTS"
    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    OUT_OF_ORDER_SEQUENCE = "OUT_OF_ORDER_SEQUENCE"
    PRODUCER_FENCED = "PRODUCER_FENCED"
    DISK_FULL = "DISK_FULL"
    STORAGE_ERROR = "STORAGE_ERROR"
    PARTITION_OFFLINE = "PARTITION_OFFLINE"
    DATA_CORRUPT = "DATA_CORRUPT"
    UNSUPPORTED_VERSION = "UNSUPPORTED_VERSION"
    UNKNOWN_TOPIC_ID = "UNKNOWN_TOPIC_ID"
    INVALID_PARTITIONS = "INVALID_PARTITIONS"
    INVALID_REPLICATION_FACTOR = "INVALID_REPLICATION_FACTOR"
    FENCED_LEADER_EPOCH = "FENCED_LEADER_EPOCH"
    UNKNOWN_LEADER_EPOCH = "UNKNOWN_LEADER_EPOCH"
    FETCH_SESSION_NOT_FOUND = "FETCH_SESSION_NOT_FOUND"
    INVALID_FETCH_SESSION_EPOCH = "INVALID_FETCH_SESSION_EPOCH"
    INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
    COORDINATOR_NOT_AVAILABLE = "COORDINATOR_NOT_AVAILABLE"
    INVALID_GROUP_ID = "INVALID_GROUP_ID"
    GROUP_NOT_FOUND = "GROUP_NOT_FOUND"
    GROUP_NOT_EMPTY = "GROUP_NOT_EMPTY"
    GROUP_FULL = "GROUP_FULL"
    GROUP_SUBSCRIBED_TO_TOPIC = "GROUP_SUBSCRIBED_TO_TOPIC"
    UNKNOWN_MEMBER = "UNKNOWN_MEMBER"
    MEMBER_ID_REQUIRED = "MEMBER_ID_REQUIRED"
    ILLEGAL_GENERATION = "ILLEGAL_GENERATION"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS"
    INCONSISTENT_GROUP_PROTOCOL = "INCONSISTENT_GROUP_PROTOCOL"
    INVALID_SESSION_TIMEOUT = "INVALID_SESSION_TIMEOUT"
    FENCED_INSTANCE = "FENCED_INSTANCE"
    UNRELEASED_INSTANCE = "UNRELEASED_INSTANCE"
    FENCED_MEMBER_EPOCH = "FENCED_MEMBER_EPOCH"
    STALE_MEMBER_EPOCH = "STALE_MEMBER_EPOCH"
    UNSUPPORTED_ASSIGNOR = "UNSUPPORTED_ASSIGNOR"
    INVALID_REGULAR_EXPRESSION = "INVALID_REGULAR_EXPRESSION"
    OFFSET_METADATA_TOO_LARGE = "OFFSET_METADATA_TOO_LARGE"
    UNSTABLE_OFFSET = "UNSTABLE_OFFSET"
    INVALID_TRANSACTION_STATE = "INVALID_TRANSACTION_STATE"
    INVALID_PRODUCER_ID_MAPPING = "INVALID_PRODUCER_ID_MAPPING"
    INVALID_TRANSACTION_TIMEOUT = "INVALID_TRANSACTION_TIMEOUT"
    CONCURRENT_TRANSACTIONS = "CONCURRENT_TRANSACTIONS"
    TRANSACTIONAL_ID_NOT_FOUND = "TRANSACTIONAL_ID_NOT_FOUND"
    TRANSACTIONAL_PRODUCER_FENCED = "TRANSACTIONAL_PRODUCER_FENCED"
    TRANSACTION_ABORTABLE = "TRANSACTION_ABORTABLE"
    UNKNOWN_PRODUCER_ID = "UNKNOWN_PRODUCER_ID"
    ELECTION_NOT_NEEDED = "ELECTION_NOT_NEEDED"
    TIMEOUT = "TIMEOUT"
    NOT_READY = "NOT_READY"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Wire:
    """How one code looks on each protocol."""

    http: int
    grpc: int
    kafka: int


WIRE: Mapping[Code, Wire] = {
    Code.INVALID_REQUEST: Wire(http=400, grpc=3, kafka=42),
    Code.INVALID_NAME: Wire(http=400, grpc=3, kafka=17),
    Code.INVALID_SETTING: Wire(http=400, grpc=3, kafka=40),
    Code.INVALID_BATCH: Wire(http=400, grpc=3, kafka=87),
    Code.CORRUPT_BATCH: Wire(http=400, grpc=3, kafka=2),
    Code.UNSUPPORTED_COMPRESSION: Wire(http=400, grpc=3, kafka=76),
    Code.ROUTE_NOT_FOUND: Wire(http=404, grpc=12, kafka=42),
    Code.METHOD_NOT_ALLOWED: Wire(http=405, grpc=12, kafka=42),
    Code.TOPIC_NOT_FOUND: Wire(http=404, grpc=5, kafka=3),
    Code.PARTITION_NOT_FOUND: Wire(http=404, grpc=5, kafka=3),
    Code.TOPIC_EXISTS: Wire(http=409, grpc=6, kafka=36),
    Code.OFFSET_OUT_OF_RANGE: Wire(http=416, grpc=11, kafka=1),
    Code.MESSAGE_TOO_LARGE: Wire(http=413, grpc=8, kafka=10),
    Code.REQUEST_TOO_LARGE: Wire(http=413, grpc=8, kafka=18),
    Code.LIMIT_EXCEEDED: Wire(http=429, grpc=8, kafka=44),
    Code.OUT_OF_ORDER_SEQUENCE: Wire(http=409, grpc=9, kafka=45),
    Code.PRODUCER_FENCED: Wire(http=409, grpc=9, kafka=47),
    Code.DISK_FULL: Wire(http=507, grpc=8, kafka=56),
    Code.STORAGE_ERROR: Wire(http=500, grpc=13, kafka=56),
    Code.PARTITION_OFFLINE: Wire(http=503, grpc=14, kafka=56),
    Code.DATA_CORRUPT: Wire(http=500, grpc=15, kafka=2),
    Code.UNSUPPORTED_VERSION: Wire(http=400, grpc=12, kafka=35),
    Code.UNKNOWN_TOPIC_ID: Wire(http=404, grpc=5, kafka=100),
    Code.INVALID_PARTITIONS: Wire(http=400, grpc=3, kafka=37),
    Code.INVALID_REPLICATION_FACTOR: Wire(http=400, grpc=3, kafka=38),
    Code.FENCED_LEADER_EPOCH: Wire(http=409, grpc=9, kafka=74),
    Code.UNKNOWN_LEADER_EPOCH: Wire(http=409, grpc=9, kafka=75),
    Code.FETCH_SESSION_NOT_FOUND: Wire(http=404, grpc=5, kafka=70),
    Code.INVALID_FETCH_SESSION_EPOCH: Wire(http=409, grpc=9, kafka=71),
    Code.INVALID_TIMESTAMP: Wire(http=400, grpc=3, kafka=32),
    Code.COORDINATOR_NOT_AVAILABLE: Wire(http=503, grpc=14, kafka=15),
    Code.INVALID_GROUP_ID: Wire(http=400, grpc=3, kafka=24),
    Code.GROUP_NOT_FOUND: Wire(http=404, grpc=5, kafka=69),
    Code.GROUP_NOT_EMPTY: Wire(http=409, grpc=9, kafka=68),
    Code.GROUP_FULL: Wire(http=429, grpc=8, kafka=81),
    Code.GROUP_SUBSCRIBED_TO_TOPIC: Wire(http=409, grpc=9, kafka=86),
    Code.UNKNOWN_MEMBER: Wire(http=404, grpc=5, kafka=25),
    Code.MEMBER_ID_REQUIRED: Wire(http=409, grpc=9, kafka=79),
    Code.ILLEGAL_GENERATION: Wire(http=409, grpc=9, kafka=22),
    Code.REBALANCE_IN_PROGRESS: Wire(http=409, grpc=10, kafka=27),
    Code.INCONSISTENT_GROUP_PROTOCOL: Wire(http=409, grpc=9, kafka=23),
    Code.INVALID_SESSION_TIMEOUT: Wire(http=400, grpc=3, kafka=26),
    Code.FENCED_INSTANCE: Wire(http=409, grpc=9, kafka=82),
    Code.UNRELEASED_INSTANCE: Wire(http=409, grpc=9, kafka=111),
    Code.FENCED_MEMBER_EPOCH: Wire(http=409, grpc=9, kafka=110),
    Code.STALE_MEMBER_EPOCH: Wire(http=409, grpc=9, kafka=113),
    Code.UNSUPPORTED_ASSIGNOR: Wire(http=400, grpc=3, kafka=112),
    Code.INVALID_REGULAR_EXPRESSION: Wire(http=400, grpc=3, kafka=128),
    Code.OFFSET_METADATA_TOO_LARGE: Wire(http=413, grpc=8, kafka=12),
    Code.UNSTABLE_OFFSET: Wire(http=409, grpc=9, kafka=88),
    Code.INVALID_TRANSACTION_STATE: Wire(http=409, grpc=9, kafka=48),
    Code.INVALID_PRODUCER_ID_MAPPING: Wire(http=409, grpc=9, kafka=49),
    Code.INVALID_TRANSACTION_TIMEOUT: Wire(http=400, grpc=3, kafka=50),
    Code.CONCURRENT_TRANSACTIONS: Wire(http=409, grpc=10, kafka=51),
    Code.TRANSACTIONAL_ID_NOT_FOUND: Wire(http=404, grpc=5, kafka=105),
    Code.TRANSACTIONAL_PRODUCER_FENCED: Wire(http=409, grpc=9, kafka=90),
    Code.TRANSACTION_ABORTABLE: Wire(http=409, grpc=9, kafka=120),
    Code.UNKNOWN_PRODUCER_ID: Wire(http=409, grpc=9, kafka=59),
    Code.ELECTION_NOT_NEEDED: Wire(http=409, grpc=9, kafka=84),
    Code.TIMEOUT: Wire(http=504, grpc=4, kafka=7),
    Code.NOT_READY: Wire(http=503, grpc=14, kafka=8),
    Code.INTERNAL: Wire(http=500, grpc=13, kafka=-1),
}
