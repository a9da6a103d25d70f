"""Lines are grouped by what has arrived, and none is lost or changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.cli import lines
from goqueue.cli.lines import LineTooLong, line_groups


def test_lines_of_a_slow_writer_come_before_it_ends() -> None:
    reading, writing = os.pipe()
    groups = line_groups(reading, count_max=500)
    os.write(writing, b"one\ntwo\nthr")
    assert next(groups) == [b"one", b"two"]
    os.write(writing, b"ee\n")
    assert next(groups) == [b"three"]
    os.close(writing)
    assert list(groups) == []
    os.close(reading)


def test_a_group_has_no_more_lines_than_asked_for(tmp_path: Path) -> None:
    assert groups_of(tmp_path, b"1\n2\n3\n4\n5", count_max=2) == [[b"1", b"2"], [b"3", b"4"], [b"5"]]


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 10)
    with pytest.raises(LineTooLong):
        groups_of(tmp_path, b"x" * 11, count_max=2)


@given(content=st.lists(st.binary().map(lambda line: line.replace(b"\n", b""))), ends=st.booleans())
def test_joined_again_the_lines_are_the_stream(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes], ends: bool
) -> None:
    stream = b"\n".join(content) + (b"\n" if ends and content else b"")
    found = [
        line for group in groups_of(tmp_path_factory.mktemp("lines"), stream, count_max=3) for line in group
    ]
    assert b"\n".join(found) == stream.removesuffix(b"\n")


def groups_of(folder: Path, content: bytes, *, count_max: int) -> list[list[bytes]]:
    path = folder / "lines"
    path.write_bytes(content)
    with path.open("rb") as file:
        return list(line_groups(file.fileno(), count_max=count_max))
