"""Configuration: defaults < TOML file < `GOQUEUE_*` environment < flags, into one typed `Config`.

Every value of every source is checked, also those that a stronger source overrides, and all problems come
back together: an operator repairs a file once, not once per line.
"""

from __future__ import annotations

import difflib
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, field, structs

from goqueue.cli.config_keys import KEY_BY_ENVIRONMENT, KEY_BY_NAME, KEYS, SECTIONS, Value, is_node_id
from goqueue.cli.config_sources import Raw, SourceUnreadable, read_environment, read_file, read_flags
from goqueue.model.settings import as_texts, resolve
from goqueue.node.config import NodeConfig

_SHOWN_LENGTH_MAX = 80
_ORDERED = (  # the first of each pair must not be above the second
    ("disk.warn_percent", "disk.refuse_percent"),
    ("default_partitions", "limits.partitions_per_topic_max"),
    ("groups.session_ms_min", "groups.session_ms_max"),
    ("groups.share_heartbeat_ms", "groups.share_session_ms"),
)


class Config(Struct, frozen=True):
    data_dir: str = "./data"
    http: str = "127.0.0.1:8080"
    kafka: str = "127.0.0.1:9092"
    kafka_advertised: str = ""
    log_level: str = "info"
    node: NodeConfig = field(default_factory=NodeConfig)


class Problem(NamedTuple):
    """One thing to repair: where it stands, what is there, and what would be right."""

    source: str
    key: str
    value: str
    right: str

    def __str__(self) -> str:
        return f"{self.source}: {self.key} = {self.value}: {self.right}" if self.key else self.right


class ConfigProblems(Exception):
    """Everything that is wrong with the configuration."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class Setting(NamedTuple):
    """A value in force and the source that set it."""

    key: str
    value: Value
    source: str


class Loaded(NamedTuple):
    config: Config
    settings: list[Setting]


def load_config(
    *,
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str | None] | None = None,
) -> Loaded:
    """The configuration in force, or `ConfigProblems` with all that is wrong."""
    problems: list[Problem] = []
    raws: list[Raw] = []
    if file is not None:
        try:
            raws += read_file(file)
        except SourceUnreadable as error:
            problems.append(Problem(file, "", "", str(error)))
    raws += read_environment(environment or {})
    raws += read_flags(flags or {})
    in_force = _default_settings() | _check(raws, problems)
    problems += _contradictions(in_force)
    if problems:
        raise ConfigProblems(problems)
    settings = [in_force[key.name] for key in KEYS]
    return Loaded(_build(settings), settings)


def default_values() -> dict[str, Value]:
    """Every key's default. The node's own name is not among them: it differs from host to host."""
    config = Config()
    values: dict[str, Value] = {
        "data_dir": config.data_dir,
        "http": config.http,
        "kafka": config.kafka,
        "kafka_advertised": config.kafka_advertised,
        "auto_create_topics": config.node.auto_create_topics,
        "log_level": config.log_level,
        "node_id": config.node.node_id,
        "default_partitions": config.node.default_partition_count,
        "drain_timeout_ms": config.node.drain_timeout_ms,
    }
    for section in ("limits", "disk", "log", "groups", "transactions", "queue"):
        values |= {
            f"{section}.{name}": value
            for name, value in structs.asdict(getattr(config.node, section)).items()
        }
    topic = as_texts(config.node.topic_defaults)
    return values | {f"topic_defaults.{name}": text for name, text in topic.items()}


def _default_settings() -> dict[str, Setting]:
    settings = {name: Setting(name, value, "default") for name, value in default_values().items()}
    hostname = socket.gethostname()
    if is_node_id(hostname):
        settings["node_id"] = Setting("node_id", hostname, "hostname")
    return settings


def _check(raws: Iterable[Raw], problems: list[Problem]) -> dict[str, Setting]:
    """The strongest value of each key; what is wrong with any of them goes to `problems`."""
    found: dict[str, Setting] = {}
    for raw in raws:
        key = KEY_BY_NAME.get(raw.name)
        if key is None:
            problems.append(_problem(raw, _unknown(raw)))
            continue
        try:
            value = key.read(raw.value, typed=raw.typed)
        except ValueError:
            problems.append(_problem(raw, f"it must be {key.kind.expected}"))
            continue
        source = raw.source if raw.typed else f"{raw.source}: {raw.written}"
        found[key.name] = Setting(key.name, value, source)
    return found


def _problem(raw: Raw, right: str) -> Problem:
    shown = repr(raw.value)
    if len(shown) > _SHOWN_LENGTH_MAX:
        shown = shown[:_SHOWN_LENGTH_MAX] + "..."
    return Problem(raw.source, raw.written, shown, right)


def _unknown(raw: Raw) -> str:
    if raw.name in SECTIONS:
        return f"{raw.name} is a table; write [{raw.name}] and its keys below"
    known = KEY_BY_NAME if raw.typed else KEY_BY_ENVIRONMENT
    nearest = difflib.get_close_matches(raw.name, known, n=1)
    return f"there is no such key; did you mean {nearest[0]}?" if nearest else "there is no such key"


def _contradictions(in_force: Mapping[str, Setting]) -> list[Problem]:
    problems = []
    for low_name, high_name in _ORDERED:
        low, high = in_force[low_name], in_force[high_name]
        if float(low.value) > float(high.value):
            right = f"it must not be above {high.key}, which is {high.value} ({high.source})"
            problems.append(Problem(low.source, low.key, str(low.value), right))
    return problems


def _build(settings: Iterable[Setting]) -> Config:
    sections: dict[str, dict[str, Value]] = {name: {} for name in ("", *SECTIONS)}
    for setting in settings:
        section, dot, name = setting.key.partition(".")
        sections[section if dot else ""][name if dot else section] = setting.value
    top, base = sections[""], NodeConfig()
    node = structs.replace(
        base,
        node_id=top.pop("node_id"),
        default_partition_count=top.pop("default_partitions"),
        auto_create_topics=top.pop("auto_create_topics"),
        drain_timeout_ms=top.pop("drain_timeout_ms"),
        topic_defaults=resolve(
            {k: str(v) for k, v in sections["topic_defaults"].items()}, base.topic_defaults
        ),
        limits=structs.replace(base.limits, **sections["limits"]),
        disk=structs.replace(base.disk, **sections["disk"]),
        log=structs.replace(base.log, **sections["log"]),
        groups=structs.replace(base.groups, **sections["groups"]),
        transactions=structs.replace(base.transactions, **sections["transactions"]),
        queue=structs.replace(base.queue, **sections["queue"]),
    )
    return structs.replace(Config(), node=node, **top)
