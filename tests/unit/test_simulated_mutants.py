"""The page about tests tells where each of the classic mistakes of a cluster is found; it must be what the simulation uses. And each
mutant must fit what it replaces: a call that fails is found too, and proves nothing."""

from __future__ import annotations

import re
from inspect import Parameter, iscoroutinefunction, isfunction, signature
from pathlib import Path
from typing import Any  # of what is replaced: classes and modules, functions and properties
from unittest.mock import patch

import pytest

from goqueue.sim.mutants import MUTANTS
from goqueue.sim.runner import WORKLOADS

PAGE = Path(__file__).parents[2] / "docs/testing.md"
ROW = re.compile(
    r'^\| [^|]+ \| `([a-z-]+)` \| `([a-z]+)` \| (\d+) \| [^|"]+: "([^|"]+)" \|$',
    re.MULTILINE,
)
CLASSIC_COUNT = 12


def test_the_page_says_of_every_classic_mistake_where_it_is_found_and_by_what() -> None:
    rows = {
        name: (workload, int(seed), found_by)
        for name, workload, seed, found_by in ROW.findall(PAGE.read_text())
    }
    assert len(rows) >= CLASSIC_COUNT
    assert rows == {
        name: (mutant.workload, mutant.first_seed, mutant.found_by)
        for name, mutant in MUTANTS.items()
        if mutant.found_by
    }


def test_every_mutant_has_a_workload() -> None:
    assert {mutant.workload for mutant in MUTANTS.values()} <= set(WORKLOADS)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_can_be_called_as_what_it_replaces(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[tuple[object, object]] = []
    replace = patch.object

    def note(target: Any, name: str, new: object) -> Any:
        replaced.append((getattr(target, name), new))
        return replace(target, name, new)

    monkeypatch.setattr(patch, "object", note)
    with MUTANTS[mutant].break_it():
        pass
    assert replaced
    for old, new in replaced:
        if isfunction(old) and isfunction(new):
            assert iscoroutinefunction(old) == iscoroutinefunction(new)
            parameters = signature(old).parameters.values()
            for given in (parameters, [one for one in parameters if one.default is Parameter.empty]):
                positional = [one.name for one in given if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
                by_name = {one.name: one for one in given if one.kind is Parameter.KEYWORD_ONLY}
                signature(new).bind(*positional, **by_name)
