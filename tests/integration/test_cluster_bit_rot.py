"""A bit has rotted in the file of a node that comes back and leads: real processes, a stock consumer, and what is on the disks."""

from __future__ import annotations

from pathlib import Path

from tests.support.cluster_load import Load, create
from tests.support.cluster_rest import Rest
from tests.support.kafka_clients import until
from tests.support.local_cluster import LocalCluster

LOG = "logs/orders/0/00000000000000000000.log"


def test_what_has_rotted_on_one_disk_is_read_from_another_and_fetched_again(tmp_path: Path) -> None:
    with LocalCluster(tmp_path) as cluster:
        rest = Rest(cluster)
        create(cluster, "orders", [[1, 2, 3]])
        with Load(cluster, "orders") as load:
            until(load.wrote(2_000), "there is something to rot")
            load.finish()
        assert (
            cluster.nodes[1].stop() == 0
        )  # so its checkpoint covers everything, and the next start looks at nothing
        path = tmp_path / "node-1" / LOG
        rotten = bytearray(path.read_bytes())
        rotten[len(rotten) // 2] ^= 1
        path.write_bytes(rotten)
        cluster.restart(1)
        until(lambda: rest.leaders(2, "orders") == [1], "node 1 leads again")
        load.check(1)
        cluster.nodes[1].stderr.wait_for("damaged records found topic=orders partition=0")
        until(lambda: rest.get(1, "/cluster/health")["status"] == "ok", "all is well")
        contents = {(tmp_path / f"node-{number}" / LOG).read_bytes() for number in (1, 2, 3)}
        assert len(contents) == 1
