"""Removing old backups. Each is complete in itself, so any may go; a piece goes when no backup that stays names it.

Manifests go first and pieces then. Whatever stops it in between leaves pieces that nobody names, which the next time removes; and
with them what backups that were stopped have left.
"""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.pipeline.backup.manifest import Backups, Manifest
from goqueue.pipeline.errors import OptionError, PipelineError


@dataclass(frozen=True, slots=True)
class Pruned:
    numbers: tuple[int, ...]
    piece_count: int
    piece_bytes: int


def prune(backups: Backups, *, keep_count: int, is_dry: bool = False) -> Pruned:
    """All but the newest so many."""
    if keep_count < 1:
        raise OptionError(f"{keep_count} backups are too few to keep; one is the least")
    if not backups.numbers():
        raise PipelineError(f"there is no backup in {backups.uri!r}")
    with backups.held(alone=True):
        numbers = backups.numbers()
        named = {name for number in numbers[-keep_count:] for name in _piece_names(backups.load(number))}
        unnamed = {name: size for name, size in backups.piece_sizes().items() if name not in named}
        pruned = Pruned(tuple(numbers[:-keep_count]), len(unnamed), sum(unnamed.values()))
        if not is_dry:
            for number in pruned.numbers:
                backups.remove(number)
            backups.store.remove(unnamed)
    return pruned


def _piece_names(manifest: Manifest) -> set[str]:
    return {piece.name for one in manifest.partitions for piece in one.pieces() if piece.digest}
