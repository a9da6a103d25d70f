"""Elections and failovers go as they are written down."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.raft_scenes import FOLDER, SCENES, play

from goqueue.sim.quorum.quorum import RaftQuorum


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: str(scene.__name__))
def test_scene_goes_as_it_is_written_down(scene: Callable[[], RaftQuorum]) -> None:
    assert play(scene) == (FOLDER / f"{scene.__name__}.txt").read_text(), "see tests/support/raft_scenes.py"


def test_every_transcript_has_its_scene() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(scene.__name__ for scene in SCENES)
