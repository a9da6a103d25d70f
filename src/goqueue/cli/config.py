"""Configuration: defaults < TOML file < `GOQUEUE_*` environment < flags, into one typed `Config`.

Every value of every source is checked, also those that a stronger source overrides, and all problems come
back together: an operator repairs a file once, not once per line. What a cluster needs other defaults for, a profile or the
number of peers, changes those defaults and nothing that was set.
"""

from __future__ import annotations

import difflib
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct, field, structs

from goqueue.cli.cluster_checks import cluster_problems, cluster_warnings, own_peer
from goqueue.cli.config_keys import (
    KEY_BY_ENVIRONMENT,
    KEY_BY_NAME,
    KEYS,
    SECRET_LENGTH_MIN,
    SECTIONS,
    Value,
    is_node_id,
)
from goqueue.cli.config_problems import Problem, Setting
from goqueue.cli.config_sources import Raw, SourceUnreadable, read_environment, read_file, read_flags
from goqueue.cli.peer_list import address_of, parse_peers
from goqueue.cli.profiles import PROFILES
from goqueue.model.settings import as_texts, resolve
from goqueue.node.config import ClusterConfig, NodeConfig

__all__ = ["Config", "ConfigProblems", "Loaded", "Problem", "Setting", "default_values", "load_config"]

_SHOWN_LENGTH_MAX = 80
_HIDDEN = "(hidden)"
_REPLICATED_PEER_COUNT = 3  # from here on one node can be lost without losing what only it has acknowledged
_REPLICATED_IN_SYNC_MIN = 2
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
    http_advertised: str = ""
    cluster_listen: str = "127.0.0.1:7000"
    cluster_advertised: str = ""
    cluster_secret: str = ""
    cluster_tls_certificate: str = ""
    cluster_tls_key: str = ""
    cluster_tls_authority: str = ""
    profile: str = "default"
    log_level: str = "info"
    node: NodeConfig = field(default_factory=NodeConfig)


class ConfigProblems(Exception):
    """Everything that is wrong with the configuration."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class Loaded(NamedTuple):
    """`settings` are to be shown: secrets are not in them."""

    config: Config
    settings: list[Setting]
    warnings: list[str]


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
    in_force = _in_force(_check(raws, problems))
    secret = _secret(in_force, problems)
    problems += _contradictions(in_force)
    problems += cluster_problems(in_force, secret)
    if problems:
        raise ConfigProblems(problems)
    settings = [in_force[key.name] for key in KEYS]
    return Loaded(_build(settings, secret), _shown(settings), cluster_warnings(in_force))


def default_values() -> dict[str, Value]:
    """Every key's default. The node's own name is not among them: it differs from host to host."""
    config = Config()
    values: dict[str, Value] = {
        "data_dir": config.data_dir,
        "http": config.http,
        "kafka": config.kafka,
        "kafka_advertised": config.kafka_advertised,
        "http_advertised": config.http_advertised,
        "auto_create_topics": config.node.auto_create_topics,
        "log_level": config.log_level,
        "node_id": config.node.node_id,
        "profile": config.profile,
        "default_partitions": config.node.default_partition_count,
        "drain_timeout_ms": config.node.drain_timeout_ms,
        "cluster.listen": config.cluster_listen,
        "cluster.advertised": config.cluster_advertised,
        "cluster.secret": config.cluster_secret,
        "cluster.secret_file": "",
        "cluster.tls_certificate": config.cluster_tls_certificate,
        "cluster.tls_key": config.cluster_tls_key,
        "cluster.tls_authority": config.cluster_tls_authority,
    }
    for section in ("limits", "disk", "log", "groups", "transactions", "queue", "cluster"):
        values |= {
            f"{section}.{name}": value
            for name, value in structs.asdict(getattr(config.node, section)).items()
        }
    values["cluster.peers"] = ""
    topic = as_texts(config.node.topic_defaults)
    return values | {f"topic_defaults.{name}": text for name, text in topic.items()}


def _in_force(found: dict[str, Setting]) -> dict[str, Setting]:
    """What was set, and for the rest the defaults that fit it."""
    in_force = _default_settings() | found
    timings = PROFILES[str(in_force["profile"].value)]
    if "profile" in found:
        in_force |= {
            (name := f"cluster.{field}"): Setting(name, value, "profile") for field, value in timings.items()
        }
    peers = parse_peers(str(in_force["cluster.peers"].value))
    if len(peers) >= _REPLICATED_PEER_COUNT:
        name = "topic_defaults.min.insync.replicas"
        in_force[name] = Setting(name, str(_REPLICATED_IN_SYNC_MIN), "peers")
    own = own_peer(peers, str(in_force["node_id"].value))
    if own is not None:
        in_force["cluster.advertised"] = Setting("cluster.advertised", str(address_of(own)), "peers")
    return in_force | found


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
            right = f"it must be {key.kind.expected}"
            problems.append(_problem(raw, right, is_secret=key.is_secret))
            continue
        source = raw.source if raw.typed else f"{raw.source}: {raw.written}"
        found[key.name] = Setting(key.name, value, source)
    return found


def _problem(raw: Raw, right: str, *, is_secret: bool = False) -> Problem:
    shown = _HIDDEN if is_secret else repr(raw.value)
    if len(shown) > _SHOWN_LENGTH_MAX:
        shown = shown[:_SHOWN_LENGTH_MAX] + "..."
    return Problem(raw.source, raw.written, shown, right)


def _unknown(raw: Raw) -> str:
    if raw.name in SECTIONS:
        return f"{raw.name} is a table; write [{raw.name}] and its keys below"
    known = KEY_BY_NAME if raw.typed else KEY_BY_ENVIRONMENT
    nearest = difflib.get_close_matches(raw.name, known, n=1)
    return f"there is no such key; did you mean {nearest[0]}?" if nearest else "there is no such key"


def _secret(in_force: Mapping[str, Setting], problems: list[Problem]) -> str:
    """The secret itself, or what the file holds that was named instead of it."""
    direct, file = in_force["cluster.secret"], in_force["cluster.secret_file"]
    if not file.value:
        return str(direct.value)
    if direct.value:
        problems.append(file.problem(f"cluster.secret is set as well ({direct.source}); give one of them"))
        return str(direct.value)
    try:
        with open(str(file.value), encoding="utf-8") as opened:
            secret = opened.read().strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        problems.append(file.problem(f"it cannot be read: {reason}"))
        return _HIDDEN  # there is one, so nobody need say that it is missing
    if len(secret) < SECRET_LENGTH_MIN:
        problems.append(file.problem(f"the secret in it must have {SECRET_LENGTH_MIN} characters or more"))
    return secret


def _shown(settings: Iterable[Setting]) -> list[Setting]:
    return [
        setting._replace(value=_HIDDEN) if setting.value and KEY_BY_NAME[setting.key].is_secret else setting
        for setting in settings
    ]


def _contradictions(in_force: Mapping[str, Setting]) -> list[Problem]:
    problems = []
    for low_name, high_name in _ORDERED:
        low, high = in_force[low_name], in_force[high_name]
        if float(low.value) > float(high.value):
            problems.append(
                low.problem(f"it must not be above {high.key}, which is {high.value} ({high.source})")
            )
    return problems


def _build(settings: Iterable[Setting], secret: str) -> Config:
    sections: dict[str, dict[str, Value]] = {name: {} for name in ("", *SECTIONS)}
    for setting in settings:
        section, dot, name = setting.key.partition(".")
        sections[section if dot else ""][name if dot else section] = setting.value
    top, base, cluster = sections[""], NodeConfig(), sections["cluster"]
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
        cluster=_cluster(base.cluster, cluster),
    )
    return structs.replace(
        Config(),
        node=node,
        cluster_listen=cluster["listen"],
        cluster_advertised=cluster["advertised"],
        cluster_secret=secret,
        cluster_tls_certificate=cluster["tls_certificate"],
        cluster_tls_key=cluster["tls_key"],
        cluster_tls_authority=cluster["tls_authority"],
        **top,
    )


def _cluster(base: ClusterConfig, section: Mapping[str, Value]) -> ClusterConfig:
    """The part that the node itself is told; the rest is for whoever puts its listeners together."""
    names = {one.name for one in structs.fields(ClusterConfig)}
    values = {name: value for name, value in section.items() if name in names and name != "peers"}
    return structs.replace(base, peers=parse_peers(str(section["peers"])), **values)
