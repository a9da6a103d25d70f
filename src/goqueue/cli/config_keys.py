"""Every configuration key: what it is called in each source, what it takes, and what it is for.

The file, the environment and the flags all go through this one table, so they cannot disagree about a name,
a type or a range. `docs/config.md` is printed from it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from goqueue.model.errors import InvalidSetting
from goqueue.model.settings import (
    SETTING_NAMES,
    TopicSettings,
    check_settings,
    describe_setting,
    setting_facts,
)

Value = str | int | float
SECTIONS = ("limits", "disk", "log", "groups", "transactions", "queue", "topic_defaults")
ENVIRONMENT_PREFIX = "GOQUEUE_"
LOG_LEVELS = ("debug", "info", "warning", "error")

_COUNT_MAX = 10_000_000
_BYTES_MAX = 2**31 - 1  # a batch's length field has 32 bits
_INTERVAL_MS_MAX = 24 * 3_600_000
_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,248}")


class Kind(NamedTuple):
    """A type of value. `parse` raises ValueError for what is not `expected`."""

    expected: str
    parse: Callable[[str], Value]
    file_types: tuple[type, ...]


class Key(NamedTuple):
    name: str
    kind: Kind
    purpose: str

    @property
    def environment_name(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.replace(".", "__", 1).replace(".", "_").upper()

    def read(self, raw: object, *, typed: bool) -> Value:
        """The checked value. A file is `typed`: there 5 and "5" differ; environment and flags hold text."""
        if typed and type(raw) not in self.kind.file_types:  # exactly: true is not 1
            raise ValueError(raw)
        return self.kind.parse(str(raw))


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_address(text: str) -> Address:
    """HOST:PORT, with an IPv6 host in brackets."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not host or (":" in host) != bracketed:
        raise ValueError(text)
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise ValueError(text)
    return Address(host, int(port))


def is_node_id(text: str) -> bool:
    return _NODE_ID.fullmatch(text) is not None


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


def _address_or_nothing() -> Kind:
    def parse(text: str) -> str:
        return str(parse_address(text)) if text else ""

    return Kind("HOST:PORT such as broker.example:9092, or empty", parse, (str,))


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
        _address_or_nothing(),
        "The address that Kafka clients are told to use, where it is not the one that is listened on.",
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
    *(
        Key(f"topic_defaults.{name}", _topic_setting(name), setting_facts(name).documentation)
        for name in SETTING_NAMES
    ),
)
KEY_BY_NAME: Mapping[str, Key] = {key.name: key for key in KEYS}
KEY_BY_ENVIRONMENT: Mapping[str, Key] = {key.environment_name: key for key in KEYS}
