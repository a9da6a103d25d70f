"""The configuration of a cluster: its own keys, defaults that depend on it, and what must not go together."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from goqueue.cli.config import Config, ConfigProblems, load_config
from goqueue.cli.link_patience import link_times
from goqueue.cli.peer_list import format_peers, parse_peers
from goqueue.cli.profiles import DEFAULT_TIMINGS, FAST_TIMINGS
from goqueue.node.config import ClusterConfig, Peer
from goqueue.peer.dialling import LinkTimes

THREE = "node-1@127.0.0.1:7001,node-2@127.0.0.1:7002,node-3@127.0.0.1:7003"
AFAR = "node-1@10.0.0.1:7000,node-2@10.0.0.2:7000,node-3@10.0.0.3:7000"
SECRET = "not to be seen by anybody"


def load(values: dict[str, str]) -> Config:
    return load_config(environment=environment_of(values)).config


def sources_of(values: dict[str, str]) -> dict[str, str]:
    settings = load_config(environment=environment_of(values)).settings
    return {setting.key: setting.source for setting in settings}


def environment_of(values: dict[str, str]) -> dict[str, str]:
    return {f"GOQUEUE_{name.replace('.', '__').upper()}": value for name, value in values.items()}


def problems_of(values: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        load_config(environment=environment_of(values))
    return [str(problem) for problem in caught.value.problems]


def test_peers_are_read_from_a_text_and_from_a_list(tmp_path: Path) -> None:
    file = tmp_path / "goqueue.toml"
    listed = ", ".join(f'"{one}"' for one in THREE.split(","))
    file.write_text(f"[cluster]\npeers = [{listed}]\n", encoding="utf-8")
    for config in (load_config(file=str(file)).config, load_config(flags={"cluster.peers": THREE}).config):
        assert config.node.cluster.peers[1] == Peer("node-2", "127.0.0.1", 7002)
        assert not config.node.is_solo


def test_a_list_of_peers_survives_being_written_and_read() -> None:
    peers = (Peer("a", "127.0.0.1", 1), Peer("b.c", "::1", 65_535), Peer("d", "broker.example", 7000))
    assert parse_peers(format_peers(peers)) == peers
    assert parse_peers(" ") == ()


@pytest.mark.parametrize(
    "text", ["node-1", "node-1@", "@h:1", "n@h:0", "n@h", "n@h:1,", "a b@h:1", "n@h:99999"]
)
def test_what_is_no_list_of_peers_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_peers(text)
    [problem] = problems_of({"cluster.peers": text})
    assert "NAME@HOST:PORT" in problem


def test_the_flags_of_a_cluster_are_called_by_their_short_names() -> None:
    with pytest.raises(ConfigProblems) as caught:
        load_config(flags={"cluster.listen": "x", "cluster.peers": "y", "profile": "z"})
    assert [str(one).split(" = ")[0] for one in caught.value.problems] == [
        "command line: --cluster",
        "command line: --peers",
        "command line: --profile",
    ]


def test_a_profile_sets_the_timings_that_are_not_set() -> None:
    values = {"profile": "fast", "cluster.dead_ms": "900"}
    expected = structs.replace(ClusterConfig(), **FAST_TIMINGS)
    assert load(values).node.cluster == structs.replace(expected, dead_ms=900)
    sources = sources_of(values)
    assert sources["cluster.heartbeat_ms"] == "profile"
    assert sources["cluster.dead_ms"] == "environment: GOQUEUE_CLUSTER__DEAD_MS"
    assert sources["cluster.quorum_wait_ms"] == "default"


def test_the_default_profile_is_what_holds_without_one() -> None:
    assert load({"profile": "default"}).node.cluster == ClusterConfig() == load({}).node.cluster
    assert DEFAULT_TIMINGS.keys() == FAST_TIMINGS.keys()


def test_three_peers_make_two_the_least_number_of_replicas_in_sync() -> None:
    name = "topic_defaults.min.insync.replicas"
    assert load({"cluster.peers": THREE}).node.topic_defaults.min_insync_replicas == 2
    assert sources_of({"cluster.peers": THREE})[name] == "peers"
    explicit = environment_of({"cluster.peers": THREE}) | {"GOQUEUE_TOPIC_DEFAULTS__MIN_INSYNC_REPLICAS": "1"}
    assert load_config(environment=explicit).config.node.topic_defaults.min_insync_replicas == 1
    two = THREE.rpartition(",")[0]
    assert load({"cluster.peers": two}).node.topic_defaults.min_insync_replicas == 1


def test_a_node_is_found_where_the_list_of_peers_says() -> None:
    values = {"cluster.peers": THREE, "node_id": "node-2", "cluster.listen": "127.0.0.1:7002"}
    assert load(values).cluster_advertised == "127.0.0.1:7002"
    assert load(values | {"cluster.advertised": "localhost:9"}).cluster_advertised == "localhost:9"


def test_a_node_that_is_not_among_its_peers_is_told_that_it_observes() -> None:
    [warning] = load_config(environment=environment_of({"cluster.peers": THREE, "node_id": "other"})).warnings
    assert "goqueue cluster voters add" in warning
    member = environment_of({"cluster.peers": THREE, "node_id": "node-1"})
    assert load_config(environment=member).warnings == []


def test_a_secret_is_never_shown() -> None:
    loaded = load_config(environment=environment_of({"cluster.secret": SECRET}))
    assert loaded.config.cluster_secret == SECRET
    assert SECRET not in str(loaded.settings)
    assert "(hidden)" in [setting.value for setting in loaded.settings]
    [problem] = problems_of({"cluster.secret": "short-secret"})
    assert "16 characters" in problem
    assert "short-secret" not in problem


def test_a_secret_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    loaded = load_config(environment=environment_of({"cluster.secret_file": str(file)}))
    assert loaded.config.cluster_secret == SECRET
    assert SECRET not in str(loaded.settings)


def test_a_secret_file_that_is_no_use_is_a_problem(tmp_path: Path) -> None:
    values = {"cluster.secret_file": str(tmp_path / "absent")}
    assert "No such file" in problems_of(values)[0]
    (tmp_path / "absent").write_text("short\n", encoding="utf-8")
    assert "16 characters" in problems_of(values)[0]
    (tmp_path / "absent").write_bytes(b"\xff" * 20)
    assert "it is not text" in problems_of(values)[0]
    assert "give one of them" in problems_of(values | {"cluster.secret": SECRET})[0]


def test_only_a_cluster_within_one_machine_goes_without_a_secret() -> None:
    afar = {"cluster.peers": AFAR, "node_id": "node-1", "cluster.listen": "10.0.0.1:7000"}
    [problem] = problems_of(afar)
    assert "cluster.secret" in problem
    assert load(afar | {"cluster.secret": SECRET}).cluster_secret == SECRET
    near = {"cluster.peers": THREE, "node_id": "node-1"}
    assert load(near).cluster_secret == ""
    assert len(problems_of(near | {"cluster.listen": "10.0.0.1:7000"})) == 1


@pytest.mark.parametrize(
    ("values", "right"),
    [
        ({"cluster.heartbeat_ms": "6000"}, "it must be below cluster.suspect_ms, which is 6000"),
        ({"cluster.suspect_ms": "9000"}, "it must be below cluster.dead_ms, which is 9000"),
        ({"cluster.dead_ms": "15001"}, "it must not be above cluster.lease_ms, which is 15000"),
        ({"cluster.lease_renew_ms": "15000"}, "it must be below cluster.lease_ms"),
        ({"cluster.tls_key": "k.pem"}, "needs cluster.tls_certificate and cluster.tls_authority"),
        ({"kafka_advertised": "0.0.0.0:9092"}, "nobody can connect to it"),
        ({"http_advertised": "[::]:8080"}, "nobody can connect to it"),
        ({"cluster.advertised": "broker:0"}, "nobody can connect to it"),
    ],
)
def test_values_that_do_not_go_together_are_an_error(values: dict[str, str], right: str) -> None:
    [problem] = problems_of(values)
    assert right in problem


@pytest.mark.parametrize(
    ("values", "right"),
    [
        ({"cluster.peers": f"{THREE},node-1@127.0.0.1:7009"}, "node-1 is there twice"),
        ({"cluster.peers": f"{THREE},d@127.0.0.1:7001"}, "node-1 and d have the same address 127.0.0.1:7001"),
        ({"cluster.peers": f"{THREE},d@0.0.0.0:7009", "cluster.secret": SECRET}, "is every address"),
        ({"http": "127.0.0.1:9092"}, "it is taken by http, which is 127.0.0.1:9092"),
        ({"cluster.listen": "127.0.0.1:8080"}, "it is taken by http"),
        ({"http": "0.0.0.0:8080"}, "set http_advertised"),
        (
            {"cluster.peers": AFAR, "node_id": "node-1", "cluster.secret": SECRET},
            "listen for this machine only",
        ),
        (
            {"cluster.peers": ",".join(f"n{at}@127.0.0.1:{7100 + at}" for at in range(101))},
            "there are 101; a cluster has 100 at most",
        ),
    ],
)
def test_peers_that_cannot_be_a_cluster_are_an_error(values: dict[str, str], right: str) -> None:
    [problem] = problems_of({"cluster.peers": THREE, "node_id": "node-2"} | values)
    assert right in problem


def test_all_problems_of_a_cluster_are_reported_at_once() -> None:
    values = {
        "cluster.peers": "a@127.0.0.1:1,a@127.0.0.1:2",
        "cluster.dead_ms": "20000",
        "cluster.tls_key": "k.pem",
    }
    assert len(problems_of(values)) == 3


def test_links_are_no_more_patient_than_the_cluster() -> None:
    assert link_times(ClusterConfig()) == LinkTimes()
    fast = link_times(structs.replace(ClusterConfig(), **FAST_TIMINGS))
    assert max(fast.connect_ms, fast.message_ms, fast.beat_ms) <= FAST_TIMINGS["dead_ms"]
    assert fast.fetch_slack_ms <= FAST_TIMINGS["replica_lag_ms_max"]
