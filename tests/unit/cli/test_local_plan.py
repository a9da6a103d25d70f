"""A cluster on one machine: names, ports, folders and the secret."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from msgspec import structs

from goqueue.cli.config import Config, load_config
from goqueue.cli.local_plan import check_folder, command_of, keep_secret, plan_nodes, refuse_nodes
from goqueue.cli.options import Failure
from goqueue.node.config import ClusterConfig, NodeConfig, Peer


def test_ports_count_up_from_the_given_ones() -> None:
    nodes = plan_nodes(Config(), 3)
    assert [node.name for node in nodes] == ["node-1", "node-2", "node-3"]
    assert [str(node.http) for node in nodes] == ["127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"]
    assert [node.kafka.port for node in nodes] == [9092, 9093, 9094]
    assert [node.cluster.port for node in nodes] == [7000, 7001, 7002]


def test_port_0_means_free_ones_all_different() -> None:
    config = Config(http="127.0.0.1:0", kafka="127.0.0.1:0", cluster_listen="127.0.0.1:0")
    ports = [address.port for node in plan_nodes(config, 9) for address in node.addresses()]
    assert len(set(ports)) == 27
    assert 0 not in ports


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Config(http="0.0.0.0:8080"), "0.0.0.0:8080 is not a loopback address"),
        (Config(http="127.0.0.1:9090"), "port 9092 would be taken twice"),
        (Config(http="127.0.0.1:65534"), "there is no port 65536"),
        (Config(kafka_advertised="h:1"), "kafka_advertised is set"),
        (
            Config(node=NodeConfig(cluster=ClusterConfig(peers=(Peer("a", "127.0.0.1", 1),)))),
            "cluster.peers is set",
        ),
    ],
)
def test_what_is_no_configuration_of_a_cluster_on_one_machine_is_refused(config: Config, reason: str) -> None:
    with pytest.raises(Failure, match=reason):
        plan_nodes(config, 3)


def test_a_folder_keeps_its_number_of_nodes(tmp_path: Path) -> None:
    check_folder(str(tmp_path / "absent"), 3)
    for name in ("node-1", "node-2", "node-3"):
        (tmp_path / name).mkdir()
    check_folder(str(tmp_path), 3)
    with pytest.raises(Failure, match="a cluster of 3 nodes; give --nodes 3"):
        check_folder(str(tmp_path), 5)


def test_the_folder_of_a_node_alone_does_not_become_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with pytest.raises(Failure, match="a node alone"):
        check_folder(str(tmp_path), 3)


def test_the_folder_of_a_cluster_is_not_for_a_broker_of_its_own(tmp_path: Path) -> None:
    refuse_nodes(str(tmp_path / "new"))
    (tmp_path / "node-1").mkdir()
    with pytest.raises(Failure, match="a cluster of 1 nodes; give --nodes 1"):
        refuse_nodes(str(tmp_path))


def test_a_broker_of_its_own_that_has_run_beside_a_cluster_goes_on(tmp_path: Path) -> None:
    (tmp_path / "node-1").mkdir()
    (tmp_path / "logs").mkdir()
    refuse_nodes(str(tmp_path))


def test_the_secret_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = Path(keep_secret(str(tmp_path)))
    secret = path.read_text()
    assert len(secret.strip()) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keep_secret(str(tmp_path)) == str(path)
    assert path.read_text() == secret


def test_a_node_is_told_what_makes_it_one_of_the_cluster(tmp_path: Path) -> None:
    config = structs.replace(Config(), data_dir=str(tmp_path), profile="fast")
    nodes = plan_nodes(config, 3)
    command = command_of(nodes[1], nodes, config=config, file=None)
    options = dict(zip(command[4:-1:2], command[5::2], strict=True))
    flags = {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in options.items()
        if name not in ("--cluster", "--peers")
    }
    told = load_config(
        flags={**flags, "cluster.listen": options["--cluster"], "cluster.peers": options["--peers"]}
    ).config
    assert told.data_dir == str(tmp_path / "node-2")
    assert told.node.node_id == "node-2"
    assert [peer.name for peer in told.node.cluster.peers] == ["node-1", "node-2", "node-3"]
    assert told.node.cluster.dead_ms == 700
    assert told.cluster_advertised == told.cluster_listen == "127.0.0.1:7001"
