"""Every configuration key: what it is called in each source, what it takes, and what it is for.

The file, the environment and the flags all go through this one table, so they cannot disagree about a name,
a type or a range. `docs/config.md` is printed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from goqueue.cli.addresses import Address, is_node_id, parse_address
from goqueue.cli.peer_list import format_peers, parse_peers
from goqueue.cli.profiles import PROFILES
from goqueue.core.cluster.levels import LEVEL_NEWEST, LEVEL_OLDEST
from goqueue.model.errors import InvalidSetting
from goqueue.model.settings import (
    SETTING_NAMES,
    TopicSettings,
    check_settings,
    describe_setting,
    setting_facts,
)

__all__ = [
    "ENVIRONMENT_PREFIX",
    "KEYS",
    "KEY_BY_ENVIRONMENT",
    "KEY_BY_NAME",
    "LOG_LEVELS",
    "SECRET_LENGTH_MIN",
    "SECTIONS",
    "Address",
    "Key",
    "Kind",
    "Value",
    "is_node_id",
    "parse_address",
]

Value = str | int | float
SECTIONS = ("limits", "disk", "log", "groups", "transactions", "queue", "cluster", "topic_defaults")
ENVIRONMENT_PREFIX = "GOQUEUE_"
LOG_LEVELS = ("debug", "info", "warning", "error")
SECRET_LENGTH_MIN = 16  # below that it can be guessed

_COUNT_MAX = 10_000_000
_BYTES_MAX = 2**31 - 1  # a batch's length field has 32 bits
_INTERVAL_MS_MAX = 24 * 3_600_000


class Kind(NamedTuple):
    """A type of value. `parse` raises ValueError for what is not `expected`."""

    expected: str
    parse: Callable[[str], Value]
    file_types: tuple[type, ...]


class Key(NamedTuple):
    name: str
    kind: Kind
    purpose: str
    is_secret: bool = False  # its value is never shown

    @property
    def environment_name(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.replace(".", "__", 1).replace(".", "_").upper()

    def read(self, raw: object, *, typed: bool) -> Value:
        """The checked value. A file is `typed`: there 5 and "5" differ; environment and flags hold text."""
        if typed and type(raw) not in self.kind.file_types:  # exactly: true is not 1
            raise ValueError(raw)
        if isinstance(raw, list):
            if not all(isinstance(one, str) and "," not in one for one in raw):
                raise ValueError(raw)
            raw = ",".join(raw)
        return self.kind.parse(str(raw))


def _whole(least: int, most: int) -> Kind:
    def parse(text: str) -> int:
        number = int(text)
        if not least <= number <= most:
            raise ValueError(text)
        return number

    return Kind(f"a whole number from {least} to {most}", parse, (int,))


def _percent() -> Kind:
    def parse(text: str) -> float:
        number = float(text)
        if not 0 < number <= 100:
            raise ValueError(text)
        return number

    return Kind("a number above 0 and up to 100", parse, (int, float))


def _text(expected: str, is_right: Callable[[str], bool]) -> Kind:
    def parse(text: str) -> str:
        if not is_right(text):
            raise ValueError(text)
        return text

    return Kind(expected, parse, (str,))


def _address(port: int) -> Kind:
    def parse(text: str) -> str:
        return str(parse_address(text))

    expected = f"HOST:PORT such as 127.0.0.1:{port} or [::1]:{port}; port 0 picks a free one"
    return Kind(expected, parse, (str,))


def _address_or_nothing(port: int) -> Kind:
    def parse(text: str) -> str:
        return str(parse_address(text)) if text else ""

    return Kind(f"HOST:PORT such as broker.example:{port}, or empty", parse, (str,))


def _file_or_nothing() -> Kind:
    return _text("the path of a file, or empty", lambda text: "\0" not in text)


def _peers() -> Kind:
    def parse(text: str) -> str:
        return format_peers(parse_peers(text))

    expected = "a list of NAME@HOST:PORT such as node-1@10.0.0.1:7000,node-2@10.0.0.2:7000, or empty"
    return Kind(expected, parse, (str, list))


def _switch() -> Kind:
    def parse(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"

    return Kind("true or false", parse, (bool,))


def _topic_setting(name: str) -> Kind:
    def parse(text: str) -> str:
        try:
            return check_settings({name: text})[name]
        except InvalidSetting as error:
            raise ValueError(text) from error

    default: object = getattr(TopicSettings(), name.replace(".", "_"))
    file_types: tuple[type, ...] = (str,)
    if isinstance(default, bool):
        file_types = (bool,)
    elif isinstance(default, int | float):
        file_types = (int, float) if isinstance(default, float) else (int,)
    return Kind(describe_setting(name), parse, file_types)


def _limit(name: str, kind: Kind, purpose: str) -> Key:
    return Key(f"limits.{name}", kind, purpose)


_COUNT = _whole(1, _COUNT_MAX)
_BYTES = _whole(1, _BYTES_MAX)
_INTERVAL = _whole(1, _INTERVAL_MS_MAX)
_RETENTION = _whole(1, 10 * 365 * 24 * 3_600_000)

KEYS: tuple[Key, ...] = (
    Key(
        "data_dir",
        _text("the path of a folder", lambda text: bool(text) and "\0" not in text),
        "The folder that holds all data. Nothing outside it is written.",
    ),
    Key("http", _address(8080), "Where the REST API listens."),
    Key("kafka", _address(9092), "Where Kafka clients connect."),
    Key(
        "kafka_advertised",
        _address_or_nothing(9092),
        "The address that Kafka clients are told to use, where it is not the one that is listened on.",
    ),
    Key(
        "http_advertised",
        _address_or_nothing(8080),
        "The address under which other nodes and REST clients find this node, where it is not the one that is listened on.",
    ),
    Key("auto_create_topics", _switch(), "Whether a topic is made when a Kafka client first names it."),
    Key(
        "log_level",
        _text("one of " + ", ".join(LOG_LEVELS), LOG_LEVELS.__contains__),
        "The least severe event that is logged.",
    ),
    Key(
        "node_id",
        _text("1 to 249 letters, digits, '.', '_' and '-', starting with a letter or digit", is_node_id),
        "The name of this node; the host's name unless set.",
    ),
    Key(
        "profile",
        _text("one of " + ", ".join(PROFILES), PROFILES.__contains__),
        "The defaults of a cluster's timings: default suits any network, fast one machine or one rack.",
    ),
    Key("default_partitions", _whole(1, 10_000), "Partitions of a topic that is created without a number."),
    Key("drain_timeout_ms", _whole(0, 600_000), "How long a stopping broker waits for requests under way."),
    _limit("topic_count_max", _COUNT, "Topics on this node."),
    _limit("partition_count_max", _COUNT, "Partitions on this node, all topics together."),
    _limit("partitions_per_topic_max", _COUNT, "Partitions of one topic."),
    _limit("key_bytes_max", _BYTES, "Size of a message's key."),
    _limit("header_count_max", _whole(0, 100_000), "Headers of one message."),
    _limit("header_bytes_max", _whole(0, _BYTES_MAX), "Size of all headers of one message together."),
    _limit("messages_per_request_max", _COUNT, "Messages in one publish request."),
    _limit("request_bytes_max", _whole(1024, _BYTES_MAX), "Size of a request's body."),
    _limit("connection_count_max", _COUNT, "Open client connections."),
    _limit("parked_read_count_max", _whole(0, _COUNT_MAX), "Reads that wait for data at the same time."),
    _limit("wait_ms_max", _whole(0, 3_600_000), "How long one read may wait for data."),
    _limit("read_bytes_max", _whole(1024, _BYTES_MAX), "Size of what one read answers, one batch at least."),
    Key("disk.refuse_percent", _percent(), "Writes are refused while the disk is fuller than this."),
    Key("disk.warn_percent", _percent(), "A warning is logged while the disk is fuller than this."),
    Key("disk.check_interval_ms", _INTERVAL, "How often the disk's free space is looked at."),
    Key("log.flush_interval_ms", _INTERVAL, "How soon a message with acks=leader is flushed to disk."),
    Key("log.checkpoint_interval_ms", _INTERVAL, "Bounds what a restart after a crash has to scan."),
    Key("log.cleanup_interval_ms", _INTERVAL, "How often retention and compaction run."),
    Key("log.sync_timeout_ms", _INTERVAL, "A flush that takes longer is an error to the client."),
    Key("log.io_thread_count", _whole(1, 256), "Threads for flushes and for reads from the device."),
    Key("groups.session_ms_min", _INTERVAL, "The shortest session a member of a classic group may ask for."),
    Key("groups.session_ms_max", _INTERVAL, "The longest."),
    Key(
        "groups.initial_rebalance_delay_ms",
        _whole(0, 600_000),
        "How long the first member of a classic group waits for others.",
    ),
    Key("groups.member_count_max", _COUNT, "Members of one group."),
    Key("groups.group_count_max", _COUNT, "Groups in one of the 50 partitions of groups."),
    Key("groups.offset_count_max", _COUNT, "Committed offsets in one of those partitions."),
    Key("groups.offset_metadata_chars_max", _COUNT, "Length of the text that is kept with an offset."),
    Key("groups.offset_retention_ms", _RETENTION, "How long an empty group keeps its offsets."),
    Key(
        "groups.consumer_session_ms",
        _INTERVAL,
        "A member of a consumer group (KIP-848) that is silent for so long is out.",
    ),
    Key("groups.consumer_heartbeat_ms", _INTERVAL, "How often such a member is told to be heard of."),
    Key("groups.share_session_ms", _INTERVAL, "A member of a queue group that is silent for so long is out."),
    Key("groups.share_heartbeat_ms", _INTERVAL, "How often such a member is told to be heard of."),
    Key("groups.share_topic_count_max", _COUNT, "Topics that such a member may subscribe to."),
    Key("groups.consumer_rebalance_ms_max", _INTERVAL, "How long such a member may hold on to a partition."),
    Key(
        "groups.gate_wait_ms",
        _INTERVAL,
        "How long a group that commits nothing waits for a partition that came by growth of a keyed topic.",
    ),
    Key(
        "transactions.timeout_ms_max", _INTERVAL, "The longest time-out a transactional producer may ask for."
    ),
    Key("transactions.id_expiration_ms", _RETENTION, "How long an idle transactional id is remembered."),
    Key("transactions.partition_count_max", _COUNT, "Partitions in one transaction."),
    Key(
        "transactions.id_count_max", _COUNT, "Transactional ids in one of the 50 partitions of transactions."
    ),
    Key(
        "transactions.member_timeout_ms_max",
        _INTERVAL,
        "The longest time-out a member of a joint transaction may ask for.",
    ),
    Key("transactions.member_count_max", _COUNT, "Open members of one joint transaction."),
    Key(
        "transactions.joint_expiration_ms",
        _RETENTION,
        "How long it is remembered which batch a joint committed last.",
    ),
    Key("transactions.joint_count_max", _COUNT, "Joints in one of the 50 partitions of transactions."),
    Key(
        "queue.in_flight_count_max",
        _COUNT,
        "Messages that one member of a queue group may hold; it gets no more until it has finished some.",
    ),
    Key("queue.poll_count_max", _COUNT, "Messages in one answer to a poll."),
    Key("cluster.listen", _address(7000), "Where the other nodes of the cluster connect."),
    Key(
        "cluster.advertised",
        _address_or_nothing(7000),
        "The address that other nodes are told to use; that in the list of peers unless set.",
    ),
    Key(
        "cluster.peers",
        _peers(),
        "All nodes of the cluster, this one too, in the same order everywhere; the first five vote. Empty: the node is alone.",
    ),
    Key(
        "cluster.secret",
        _text(
            f"a text of {SECRET_LENGTH_MIN} characters or more, or empty",
            lambda text: not text or len(text) >= SECRET_LENGTH_MIN,
        ),
        "What nodes prove with that they belong to the cluster. Needed unless all of it is on this machine.",
        is_secret=True,
    ),
    Key(
        "cluster.secret_file",
        _file_or_nothing(),
        "A file that holds the secret, instead of the secret itself.",
    ),
    Key(
        "cluster.tls_certificate", _file_or_nothing(), "This node's certificate (PEM), for TLS between nodes."
    ),
    Key("cluster.tls_key", _file_or_nothing(), "Its private key (PEM)."),
    Key(
        "cluster.tls_authority",
        _file_or_nothing(),
        "The authority (PEM) that has signed the certificates of all nodes; who has none of it is turned away.",
    ),
    Key(
        "cluster.rack",
        _text("a text of up to 249 characters", lambda text: len(text) <= 249),
        "Where this node stands; the replicas of a partition are spread over racks.",
    ),
    Key(
        "cluster.follower_reads",
        _switch(),
        "Kafka consumers that say in which rack they are (client.rack) read from a replica in sync there. The same on all nodes.",
    ),
    Key("cluster.heartbeat_ms", _INTERVAL, "How often a node says that it lives."),
    Key("cluster.suspect_ms", _INTERVAL, "A node that is silent for so long is suspected."),
    Key(
        "cluster.dead_ms", _INTERVAL, "A node that is silent for so long is fenced: others lead what it led."
    ),
    Key(
        "cluster.lease_ms",
        _INTERVAL,
        "A controller that a majority has not answered for so long steps down.",
    ),
    Key(
        "cluster.lease_renew_ms",
        _INTERVAL,
        "How often the controller renews its lease at least; it does with every heartbeat, so only what is below `heartbeat_ms` counts.",
    ),
    Key("cluster.quorum_wait_ms", _INTERVAL, "A starting node that finds no majority for so long says so."),
    Key("cluster.leave_ms", _INTERVAL, "How long a stopping node waits for others to lead what it led."),
    Key("cluster.command_timeout_ms", _INTERVAL, "How long a change of the cluster's metadata may take."),
    Key(
        "cluster.replica_lag_ms_max",
        _INTERVAL,
        "A replica that has not caught up with its leader for so long is not in sync.",
    ),
    Key("cluster.replica_wait_ms", _INTERVAL, "How long a replica's fetch waits for something new."),
    Key(
        "cluster.replica_bytes_max",
        _whole(1024, _BYTES_MAX),
        "Size of what one such fetch answers, one batch at least.",
    ),
    Key(
        "cluster.balance_ms",
        _INTERVAL,
        "How often leaderships are given back to the replicas that are preferred.",
    ),
    Key(
        "cluster.feature_level_max",
        _whole(LEVEL_OLDEST, LEVEL_NEWEST),
        "The feature level that this node says it understands; a lower one than its own keeps the way back to an older version open.",
    ),
    *(
        Key(f"topic_defaults.{name}", _topic_setting(name), setting_facts(name).documentation)
        for name in SETTING_NAMES
    ),
)
KEY_BY_NAME: Mapping[str, Key] = {key.name: key for key in KEYS}
KEY_BY_ENVIRONMENT: Mapping[str, Key] = {key.environment_name: key for key in KEYS}
