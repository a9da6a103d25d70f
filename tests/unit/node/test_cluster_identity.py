"""What a node's folder knows of the processes that have registered with it."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from goqueue.log.disk import replace_file
from goqueue.node.cluster.identity import Identity, IdentityFile
from goqueue.node.cluster.ports import Join
from goqueue.sim.disk import SimDisk

METADATA = "logs/__cluster_metadata"


def folder() -> tuple[SimDisk, IdentityFile]:
    """As it is when a node joins: there is metadata."""
    disk = SimDisk(Random(1))
    mount = disk.mount()
    mount.make_dir(f"{METADATA}/0")
    for path in (METADATA, "logs", ""):
        mount.sync_dir(path)
    return disk, IdentityFile(mount)


def begun(disk: SimDisk) -> Identity:
    found = IdentityFile(disk.mount()).begin("n1")
    assert found is not None
    return found


def test_who_registers_is_noted_before_and_after() -> None:
    """The process may die between the two: then both may be the last one that is known."""
    disk, file = folder()
    identity = Identity("n1", "c").joined("a").joining("b")
    file.save(identity)
    disk.crash()
    assert begun(disk) == identity == Identity("n1", "c", incarnations=["a", "b"])
    assert identity.joining("c").joined("c").incarnations == ["a", "b", "c"]


def test_a_folder_that_knows_of_nobody_does_not_note_who_may_not_come_to_register() -> None:
    """An earlier version wrote it, and another incarnation is registered: it would look as if the folder were older than that."""
    disk, _ = folder()
    replace_file(disk.mount(), "node.json", b'{"name":"n1","cluster_id":"c","addresses":{}}')
    identity = begun(disk)
    assert identity.joining("a") == identity == Identity("n1", "c")


@pytest.mark.parametrize("known", [["a"], []])
def test_a_folder_without_its_metadata_is_nobodys_who_has_registered(known: list[str]) -> None:
    """And stays so where the process dies before it has registered: there is metadata again by then."""
    disk, _ = folder()
    replace_file(disk.mount(), "node.json", msgspec.json.encode(Identity("n1", "c", incarnations=known)))
    disk.mount().remove_tree(METADATA)
    identity = begun(disk)
    assert identity.cluster_id == "c"
    assert not {"a"} & set(identity.incarnations)
    IdentityFile(disk.mount()).save(identity.joining("b"))
    disk.mount().make_dir(f"{METADATA}/0")
    disk.kill()
    assert begun(disk).incarnations == [*identity.incarnations, "b"]


def test_an_empty_disk_is_no_folder_of_anybody() -> None:
    assert IdentityFile(SimDisk(Random(1)).mount()).begin("n1") is None


def test_the_one_that_joined_last_stays_known_however_many_do_not_come_to_it() -> None:
    identity = Identity("n1", "c")
    for number in range(20):
        identity = identity.joining(str(number)).joined(str(number))
    assert identity.incarnations == [str(number) for number in range(12, 20)]
    for number in range(20, 300):
        identity = identity.joining(str(number))
    assert len(identity.incarnations) == 100
    assert {"19", "299", "298"} <= set(identity.incarnations)


def test_earlier_versions_know_nothing_of_it_and_are_understood() -> None:
    assert msgspec.json.decode(b'{"name":"n1"}', type=Identity).incarnations == []
    join = b'{"name":"n1","incarnation":"a","endpoints":{"http":"h","kafka":"k","cluster":"c"}}'
    assert msgspec.json.decode(join, type=Join).previous == []
