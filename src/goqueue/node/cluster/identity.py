"""Who this data folder belongs to: `node.json`, written when the node has joined its cluster, before anything of the cluster is.

It also says where nodes are that nobody has configured: some may vote by now, and without them the log cannot be read to find out.
And it says which processes have registered with this folder: a copy of it that is put back does not know of those that came after it.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, structs

from goqueue.log.disk import Disk, read_file, replace_file
from goqueue.model.cluster_errors import WrongCluster
from goqueue.model.errors import StorageError
from goqueue.model.names import METADATA_TOPIC
from goqueue.node.folder import LOGS

_FILE = "node.json"
_NOBODY = "-"
_KEPT = 8  # incarnations: the last that has joined, and those before it whose requests may still be under way
_INCARNATION_COUNT_MAX = 100


class Identity(Struct, frozen=True):
    name: str
    cluster_id: str | None = None
    addresses: dict[
        str, str
    ] = {}  # of nodes that are not among the configured peers: where each was last, as `host:port`
    incarnations: list[
        str
    ] = []  # that have registered with this folder, or may have, in order; none where that is not known

    def of_cluster(self, cluster_id: str | None) -> Identity:
        """None while that has no id yet. Raises WrongCluster if the folder was part of another."""
        if self.cluster_id is not None and cluster_id not in (None, self.cluster_id):
            raise WrongCluster(self.cluster_id, str(cluster_id))
        return structs.replace(self, cluster_id=cluster_id or self.cluster_id)

    def joining(self, incarnation: str) -> Identity:
        """Before it registers, for it may not live to hear the answer. Not in a folder that does not know of those before: it would look
        as if there had been none."""
        if not self.incarnations:
            return self
        noted = [*self.incarnations, incarnation]
        if len(noted) > _INCARNATION_COUNT_MAX:
            del noted[_KEPT]  # the one that has joined last is before it
        return structs.replace(self, incarnations=noted)

    def joined(self, incarnation: str) -> Identity:
        """None that is older is registered any more."""
        before = [each for each in self.incarnations if each != incarnation]
        return structs.replace(self, incarnations=[*before, incarnation][-_KEPT:])


class IdentityFile:
    """Everything here blocks."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def begin(self, name: str) -> Identity | None:
        """What the last process left, if there was one. Where the metadata is gone, which was there before this file was, somebody has taken it away to put the
        rest back (docs/cluster.md), or more may be gone: then the folder is nobody's who has registered."""
        found = self._read()
        if found is None:
            return None
        if found.name != name:
            raise StorageError(
                f"the data folder belongs to node {found.name!r}, not to {name!r}; check --node-id and --data-dir"
            )
        if not self._disk.list(f"{LOGS}/{METADATA_TOPIC}"):
            found = structs.replace(found, incarnations=[_NOBODY])
            self.save(found)
        return found

    def refuse_member(self) -> None:
        """For a node that starts alone. It would not know the topics of a cluster, and put their logs aside."""
        found = self._read()
        if found is not None:
            raise StorageError(
                f"the data folder belongs to node {found.name!r} of a cluster ({found.cluster_id}), and this node is told of no other; "
                "give --peers as before, or another --data-dir"
            )

    def _read(self) -> Identity | None:
        content = read_file(self._disk, _FILE)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=Identity)
        except msgspec.DecodeError as error:
            raise StorageError(
                f"{_FILE} cannot be read: {error}; move it away if you know what you do"
            ) from error

    def save(self, identity: Identity) -> None:
        """On disk when this returns."""
        replace_file(self._disk, _FILE, msgspec.json.encode(identity) + b"\n")
