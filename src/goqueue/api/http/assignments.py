"""Replicas as clients name them, by name or by number, and as the node takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from goqueue.api.http.read import path_number
from goqueue.model.errors import InvalidReplicaAssignment
from goqueue.node.directory import Directory

GivenReplicas = Mapping[str, Sequence[str | int]]  # by partition


def numbered(given: GivenReplicas, directory: Directory, *, first: int) -> list[list[int]]:
    """By partition, from `first` on, the preferred leader first. Nobody is left out and nobody is added."""
    by_partition = {path_number("partition", index): nodes for index, nodes in given.items()}
    indexes = sorted(by_partition)
    if indexes != list(range(first, first + len(indexes))) or len(indexes) != len(given):
        raise InvalidReplicaAssignment(
            f"replica_assignments must name each new partition once, beginning with {first}; it names {indexes}",
            partitions=indexes,
        )
    return [[_number(node, directory) for node in by_partition[index]] for index in indexes]


def _number(node: str | int, directory: Directory) -> int:
    if isinstance(node, int):
        return node
    number = directory.number if node == directory.name_of(directory.number) else directory.number_of(node)
    if number is None:
        raise InvalidReplicaAssignment(f"there is no node {node!r} in the cluster", node=node)
    return number
