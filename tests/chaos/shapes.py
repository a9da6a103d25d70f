"""Shapes of a broken network, as the pairs (from, to) whose messages are lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations, product
from typing import Final

Cuts = set[tuple[int, int]]
Shape = Callable[[Sequence[int], random.Random], Cuts]


def one_way(nodes: Sequence[int], chance: random.Random) -> Cuts:
    """One node is not heard by another, or by any of the others, and hears them all."""
    source, *others = chance.sample(list(nodes), len(nodes))
    targets = others if chance.random() < 0.5 else others[:1]
    return {(source, target) for target in targets}


def halves(nodes: Sequence[int], chance: random.Random) -> Cuts:
    """A majority and the rest."""
    mixed = chance.sample(list(nodes), len(nodes))
    majority = len(nodes) // 2 + 1
    return both_ways(product(mixed[:majority], mixed[majority:]))


def bridge(nodes: Sequence[int], chance: random.Random) -> Cuts:
    """Two sides that do not see each other, and one node that sees both."""
    _, *others = chance.sample(list(nodes), len(nodes))
    half = (len(others) + 1) // 2
    return both_ways(product(others[:half], others[half:]))


def ring(nodes: Sequence[int], chance: random.Random) -> Cuts:
    """Everybody sees its two neighbours and nobody else: each sees a majority of five, and no two see the same."""
    mixed = chance.sample(list(nodes), len(nodes))
    count = len(mixed)
    return {
        (mixed[one], mixed[other])
        for one, other in permutations(range(count), 2)
        if (one - other) % count not in (1, count - 1)
    }


def both_ways(pairs: Iterable[tuple[int, int]]) -> Cuts:
    return {way for one, other in pairs for way in ((one, other), (other, one))}


SHAPES: Final[Mapping[str, Shape]] = {"one-way": one_way, "halves": halves, "bridge": bridge, "ring": ring}
