"""The broken variants of the queue still say something: what they replace is in the sources, and their tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts.broken_variants import ROOT, occurrences, table
from scripts.queue_variants import VARIANTS, Variant

TRAPS = {1, 2, 5, *range(10, 20)}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: f"{one.trap} {one.mistake}")
def test_what_a_variant_breaks_is_there_once_and_its_tests_exist(variant: Variant) -> None:
    assert occurrences(variant) == 1
    assert variant.new != variant.old
    assert variant.tests
    for test in variant.tests:
        path, name = test.split("[")[0].split("::")
        assert re.search(rf"^def {name}\(", Path(ROOT, path).read_text(), re.MULTILINE), test


def test_every_trap_of_the_queue_has_a_variant() -> None:
    assert {variant.trap for variant in VARIANTS} == TRAPS


def test_the_page_has_the_table_as_it_is_printed() -> None:
    page = Path(ROOT, "docs/testing.md").read_text()
    assert "\n".join(table(VARIANTS)) in page, "run `make variants` and copy its table to docs/testing.md"
