"""The tests that the page about tests names are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(test_\w+)::(test_\w+)(?:\[(\w+)\])?`")
CLUSTER_TRAPS = {7, 26, 27, 28, 29, 30, 31}


def test_every_test_that_the_page_names_exists() -> None:
    named = NAMED.findall((ROOT / "docs/testing.md").read_text())
    assert named
    missing = [name for name in named if not _exists(*name)]
    assert missing == []


def test_the_page_has_every_trap_of_the_cluster() -> None:
    rows = re.findall(
        r"^\| (\d+) \| [^|]+ \| `[^|]+` \|$", (ROOT / "docs/testing.md").read_text(), re.MULTILINE
    )
    assert {int(trap) for trap in rows} >= CLUSTER_TRAPS


def _exists(stem: str, name: str, parameter: str) -> bool:
    """`parameter` is somewhere in the file, or a transcript of the cluster."""
    for path in (ROOT / "tests").rglob(f"{stem}.py"):
        text = path.read_text()
        if re.search(rf"^def {name}\(", text, re.MULTILINE):
            is_transcript = (ROOT / f"tests/golden/cluster/{parameter}.txt").is_file()
            return not parameter or is_transcript or f'"{parameter}"' in text
    return False
