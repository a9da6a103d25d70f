"""Lines out of what the sides gave: ours against each of the others, round by round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from bench.line import Goal, Line, Rounds, spread
from bench.sides import Named

T = TypeVar("T")
Figures = Mapping[str, Callable[[T], float]]


def compare(
    sides: Sequence[Named],
    taken: Mapping[str, Sequence[T]],
    *,
    name: str,
    title: str,
    unit: str,
    value: Callable[[T], float],
    figures: Figures[T],
    goals: Mapping[str, Goal] | None = None,
) -> list[Line]:
    """One line per peer; `figures` are told of both. A line without a ratio if there is no peer at all."""
    ours, *peers = sides
    mine = taken[ours.name]
    own = _medians(figures, mine)
    values = [value(sample) for sample in mine]
    goals = goals or {}
    if not peers:
        return [Line(name, title, unit, spread(values), details=own)]
    lines = []
    for peer in peers:
        theirs = taken[peer.name]
        rounds = Rounds(values, [value(sample) for sample in theirs])
        others = {f"{peer.name}_{figure}": amount for figure, amount in _medians(figures, theirs).items()}
        lines.append(
            rounds.line(
                f"{name}.vs_{peer.name}",
                f"{title}; against {peer.title}",
                unit,
                reference=peer.title,
                goal=goals.get(peer.name),
                details=own | others,
            )
        )
    return lines


def _medians(figures: Figures[T], samples: Sequence[T]) -> dict[str, float | str]:
    return {name: spread([figure(sample) for sample in samples]).median for name, figure in figures.items()}
