"""Configuration: four sources, one typed result, every problem at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from goqueue.cli import config_docs
from goqueue.cli.config import Config, ConfigProblems, default_values, load_config
from goqueue.cli.config_keys import KEYS, SECTIONS, Address, parse_address
from goqueue.model.settings import SETTING_NAMES, CleanupPolicy
from goqueue.node.config import NodeConfig

DOCS = Path(__file__).parents[3] / "docs" / "config.md"


def write(folder: Path, text: str) -> str:
    path = folder / "goqueue.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def problems_of(
    *,
    file: str | None = None,
    environment: dict[str, str] | None = None,
    flags: dict[str, str | None] | None = None,
) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        load_config(file=file, environment=environment, flags=flags)
    return [str(problem) for problem in caught.value.problems]


def test_without_any_source_the_defaults_are_in_force() -> None:
    loaded = load_config()
    expected = Config(node=structs.replace(NodeConfig(), node_id=loaded.config.node.node_id))
    assert loaded.config == expected
    assert {setting.source for setting in loaded.settings} <= {"default", "hostname"}


def test_the_node_is_called_after_its_host_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "rack-7")
    assert load_config().config.node.node_id == "rack-7"
    assert load_config(flags={"node_id": "blue"}).config.node.node_id == "blue"
    monkeypatch.setattr("socket.gethostname", lambda: "not a name!")
    assert load_config().config.node.node_id == NodeConfig().node_id


def test_each_source_overrides_the_one_before_it(tmp_path: Path) -> None:
    file = write(
        tmp_path, 'data_dir = "/file"\nhttp = "127.0.0.1:1"\nlog_level = "error"\nnode_id = "file"\n'
    )
    environment = {
        "GOQUEUE_HTTP": "127.0.0.1:2",
        "GOQUEUE_LOG_LEVEL": "debug",
        "GOQUEUE_NODE_ID": "environment",
    }
    loaded = load_config(file=file, environment=environment, flags={"node_id": "flag", "log_level": None})
    config = loaded.config
    assert (config.data_dir, config.http) == ("/file", "127.0.0.1:2")
    assert (config.log_level, config.node.node_id) == ("debug", "flag")
    sources = {setting.key: setting.source for setting in loaded.settings}
    assert sources["data_dir"] == file
    assert sources["http"] == "environment: GOQUEUE_HTTP"
    assert sources["node_id"] == "command line: --node-id"
    assert sources["drain_timeout_ms"] == "default"


def test_tables_and_double_underscores_reach_every_layer(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "default_partitions = 7\n[limits]\nrequest_bytes_max = 2048\n[disk]\nwarn_percent = 50\n"
        '[log]\nio_thread_count = 2\n[topic_defaults]\n"retention.ms" = 1000\n"cleanup.policy" = "compact"\n',
    )
    environment = {"GOQUEUE_DISK__REFUSE_PERCENT": "60.5", "GOQUEUE_TOPIC_DEFAULTS__SEGMENT_BYTES": "4096"}
    node = load_config(file=file, environment=environment).config.node
    assert node.default_partition_count == 7
    assert node.limits.request_bytes_max == 2048
    assert (node.disk.warn_percent, node.disk.refuse_percent) == (50.0, 60.5)
    assert node.log.io_thread_count == 2
    assert (node.topic_defaults.retention_ms, node.topic_defaults.segment_bytes) == (1000, 4096)
    assert node.topic_defaults.cleanup_policy is CleanupPolicy.COMPACT


def test_a_topic_setting_means_the_same_with_and_without_quotes(tmp_path: Path) -> None:
    file = write(tmp_path, "[topic_defaults]\nretention.ms = 1000\n")
    assert load_config(file=file).config.node.topic_defaults.retention_ms == 1000


def test_a_topic_setting_that_is_a_switch_is_written_as_one(tmp_path: Path) -> None:
    key = '[topic_defaults]\n"unclean.leader.election.enable" = '
    environment = {"GOQUEUE_TOPIC_DEFAULTS__UNCLEAN_LEADER_ELECTION_ENABLE": "false"}
    loaded = load_config(file=write(tmp_path, key + "false\n"), environment=environment)
    assert loaded.config.node.topic_defaults.unclean_leader_election_enable is False
    for text in ('"false"', "0"):
        (problem,) = problems_of(file=write(tmp_path, key + text + "\n"))
        assert "it must be true or false" in problem


def test_all_problems_of_all_sources_are_reported_at_once(tmp_path: Path) -> None:
    file = write(
        tmp_path, 'data_dir = 5\n[disk]\nwarn_percent = 150\n[topic_defaults]\n"segment.bytes" = 1\n'
    )
    problems = problems_of(
        file=file,
        environment={"GOQUEUE_LIMITS__REQUEST_BYTES_MAX": "many", "GOQUEUE_LOG_LEVEL": "loud"},
        flags={"http": "nowhere"},
    )
    assert problems == [
        f"{file}: data_dir = 5: it must be the path of a folder",
        f"{file}: disk.warn_percent = 150: it must be a number above 0 and up to 100",
        f"{file}: topic_defaults.segment.bytes = 1: it must be a whole number from 1024 to 1073741824",
        "environment: GOQUEUE_LIMITS__REQUEST_BYTES_MAX = 'many': it must be a whole number from 1024 to 2147483647",
        "environment: GOQUEUE_LOG_LEVEL = 'loud': it must be one of debug, info, warning, error",
        "command line: --http = 'nowhere': it must be HOST:PORT such as 127.0.0.1:8080 or [::1]:8080; "
        "port 0 picks a free one",
    ]


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("[limits]\nrequest_byte_max = 1\n", "did you mean limits.request_bytes_max?"),
        ("datadir = 'x'\n", "did you mean data_dir?"),
        ("[topic_defaults]\n'retention.mss' = 1\n", "did you mean topic_defaults.retention.ms?"),
        ("zzz = 1\n", "there is no such key"),
        ("[nonsense]\n", "there is no such key"),
        ("limits = 3\n", "limits is a table; write [limits] and its keys below"),
    ],
)
def test_an_unknown_key_of_a_file_is_an_error_with_the_nearest_name(
    tmp_path: Path, text: str, suggestion: str
) -> None:
    [problem] = problems_of(file=write(tmp_path, text))
    assert problem.endswith(suggestion)


def test_an_unknown_variable_is_an_error_with_the_nearest_name() -> None:
    [problem] = problems_of(environment={"GOQUEUE_DATADIR": "x", "PATH": "y", "GOQUEUE_URL": "u"})
    assert (
        problem == "environment: GOQUEUE_DATADIR = 'x': there is no such key; did you mean GOQUEUE_DATA_DIR?"
    )


@pytest.mark.parametrize(
    "line",
    [
        'drain_timeout_ms = "5"',
        "drain_timeout_ms = true",
        "drain_timeout_ms = 5.0",
        "drain_timeout_ms = [5]",
        "drain_timeout_ms = 2026-01-01",
        "data_dir = ''",
        "node_id = '../up'",
        "topic_defaults.'retention.ms' = '1000'",
        "topic_defaults.'cleanup.policy' = 1",
    ],
)
def test_a_value_of_the_wrong_type_is_an_error(tmp_path: Path, line: str) -> None:
    [problem] = problems_of(file=write(tmp_path, line))
    assert "it must be" in problem


def test_values_that_contradict_each_other_are_an_error() -> None:
    [problem] = problems_of(environment={"GOQUEUE_DISK__REFUSE_PERCENT": "80"})
    assert problem == (
        "default: disk.warn_percent = 85.0: it must not be above disk.refuse_percent, which is 80.0 "
        "(environment: GOQUEUE_DISK__REFUSE_PERCENT)"
    )


def test_a_wrong_value_is_reported_even_if_a_stronger_source_overrides_it(tmp_path: Path) -> None:
    assert problems_of(file=write(tmp_path, "http = 1"), flags={"http": "127.0.0.1:0"})


def test_a_file_that_cannot_be_read_or_is_not_toml_is_one_problem_among_others(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.toml")
    assert (
        problems_of(file=missing, flags={"http": "x"})[0]
        == f"{missing} cannot be read: No such file or directory"
    )
    assert "is not TOML" in problems_of(file=write(tmp_path, "= what"))[0]
    assert "is not TOML" in problems_of(file=write(tmp_path, f"drain_timeout_ms = {'9' * 5_000}"))[0]


def test_a_long_value_is_cut_in_the_report() -> None:
    [problem] = problems_of(environment={"GOQUEUE_HTTP": "x" * 10_000})
    assert len(problem) < 300


def test_every_field_of_every_layer_has_a_key() -> None:
    names = {key.name for key in KEYS}
    node = NodeConfig()
    for section in SECTIONS[:-1]:
        fields = structs.fields(getattr(node, section))
        assert {f"{section}.{field.name}" for field in fields} <= names
    assert {f"topic_defaults.{name}" for name in SETTING_NAMES} <= names
    assert names == default_values().keys()
    top = {field.name for field in structs.fields(NodeConfig)} | {
        field.name.replace("cluster_", "cluster.", 1) for field in structs.fields(Config)
    }
    assert top - {"node", *SECTIONS, "default_partition_count"} <= names


def test_every_default_is_within_its_own_range() -> None:
    assert {key.name: key.read(default_values()[key.name], typed=False) for key in KEYS} == default_values()


def test_environment_names_are_unique() -> None:
    assert len({key.environment_name for key in KEYS}) == len(KEYS)


def test_the_documentation_of_the_configuration_is_up_to_date() -> None:
    assert DOCS.read_text(encoding="utf-8") == config_docs.render(), "run make docs"


@pytest.mark.parametrize(
    "text", ["", ":80", "host", "host:", "host:x", "host:65536", "::1:80", "[::1]", "[]:80", "h:-1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_address(text)


@given(host=st.sampled_from(["127.0.0.1", "::1", "broker.example"]), port=st.integers(0, 65_535))
def test_an_address_survives_being_written_and_read(host: str, port: int) -> None:
    assert parse_address(str(Address(host, port))) == Address(host, port)


def test_only_this_machine_is_loopback() -> None:
    assert all(Address(host, 1).is_loopback for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"))
    assert not any(Address(host, 1).is_loopback for host in ("0.0.0.0", "::", "10.0.0.1", "broker.example"))
