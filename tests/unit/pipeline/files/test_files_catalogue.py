"""The topics of a folder, and its segment files as jobs plan with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.logs import FOLDER
from tests.support.nodes import World, create, publish, read_all, simulate
from tests.support.segment_folders import PLACE, RandomLog, all_rows, write_out

from goqueue.node.node import Node
from goqueue.pipeline.errors import DataLoss
from goqueue.pipeline.files.catalogue import METADATA, partition_exists, topics_in
from goqueue.pipeline.files.plan import partition_files
from goqueue.pipeline.files.storage import Listed, LocalStorage
from goqueue.pipeline.files.transport import FilesTransport
from goqueue.pipeline.span import Place


class ObjectStore(LocalStorage):
    """A folder as an object store has it: where no file is, there is no folder either."""

    keeps_folders = False

    def list(self, path: str) -> list[Listed] | None:
        entries = super().list(path) or []
        kept = [one for one in entries if not one.is_dir or self.list(f"{path}/{one.name}")]
        return kept or None


def folder_of_a_node(root: Path) -> None:
    async def main(node: Node) -> None:
        await create(node, "orders", partition_count=3)
        await publish(node, b"a", b"b", topic="orders", partition=1)
        await create(node, "quiet", partition_count=2)
        await create(node, "grown", partition_count=1)
        await publish(node, b"c", topic="grown")
        await node.topics.grow("grown", 4)
        await create(node, "gone", partition_count=1)
        await publish(node, b"d", topic="gone")
        await node.topics.delete("gone")

    async def life(world: World) -> None:
        await world.live(main)
        write_out(world.device, root)

    simulate(life)
    for name, count in {"orders": 3, "quiet": 2, "grown": 4}.items():
        for index in range(count):
            (root / "logs" / name / str(index)).mkdir(parents=True, exist_ok=True)


def test_topics_are_those_of_the_broker_without_its_own(tmp_path: Path) -> None:
    folder_of_a_node(tmp_path)
    assert FilesTransport(str(tmp_path)).topics() == {"grown": 4, "orders": 3, "quiet": 2}
    assert (tmp_path / "logs" / METADATA.topic).exists()


def test_rows_of_a_node_are_those_it_reads(tmp_path: Path) -> None:
    found: list[bytes | None] = []

    async def main(node: Node) -> None:
        await create(node, "orders")
        for at in range(50):
            await publish(node, b"%d" % at, None, key=b"k")
        found.extend(record.value for record in await read_all(node))

    async def life(world: World) -> None:
        await world.live(main)
        write_out(world.device, tmp_path)

    simulate(life)
    transport = FilesTransport(str(tmp_path))
    for committed in (True, False):
        rows = all_rows(transport, committed=committed, place=Place("orders", 0))
        assert [row.value for row in rows] == found


def test_empty_partitions_need_no_folder_in_an_object_store(tmp_path: Path) -> None:
    folder_of_a_node(tmp_path)
    store = ObjectStore(str(tmp_path))
    assert topics_in(store, skips_damage=False) == {"grown": 4, "orders": 3}
    assert partition_exists(store, Place("orders", 2))
    assert not partition_exists(store, Place("quiet", 0))


def test_a_topic_whose_deletion_a_crash_interrupted_is_not_there(tmp_path: Path) -> None:
    folder_of_a_node(tmp_path)
    shutil.copytree(tmp_path / "logs" / "grown", tmp_path / "logs" / "gone")
    assert "gone" not in FilesTransport(str(tmp_path)).topics()


def test_a_backup_without_the_catalogue_is_read_by_its_folders(tmp_path: Path) -> None:
    folder_of_a_node(tmp_path)
    shutil.rmtree(tmp_path / "logs" / METADATA.topic)
    transport = FilesTransport(str(tmp_path))
    assert transport.topics() == {"grown": 4, "orders": 3, "quiet": 2}
    shutil.rmtree(tmp_path / "logs" / "orders" / "1")
    assert transport.topics()["orders"] == 3
    with pytest.raises(DataLoss, match="orders/1 is not there"):
        transport.earliest([Place("orders", index) for index in range(3)])


def test_a_damaged_catalogue_is_said(tmp_path: Path) -> None:
    folder_of_a_node(tmp_path)
    path = tmp_path / "logs" / METADATA.topic / "0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataLoss, match="the catalogue cannot be read"):
        FilesTransport(str(tmp_path)).topics()
    topics = FilesTransport(str(tmp_path), on_damage="skip").topics()
    assert topics == {"grown": 4, "orders": 3, "quiet": 2}


@pytest.mark.parametrize("seed", range(8))
def test_segment_files_tile_the_log(seed: int, tmp_path: Path) -> None:
    log = RandomLog(seed)
    log.steps(80)
    log.disk.checkpoint()
    log.write_out(tmp_path)
    files = partition_files(str(tmp_path), PLACE)
    segments = [one for one in log.disk.log.segments if one.size]
    assert [(one.base_offset, one.end_offset, one.size, one.max_timestamp) for one in files] == [
        (one.base_offset, one.end_offset, one.size, one.max_timestamp) for one in segments
    ]
    assert [Path(one.path).stat().st_size for one in files] == [one.size for one in files]
    assert files[0].base_offset <= log.disk.log.log_start
    assert files[-1].end_offset == log.end


def test_partition_without_records_has_no_segment_files(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    assert partition_files(str(tmp_path), PLACE) == []
