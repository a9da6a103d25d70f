"""The shape of the code, checked: who may import whom, purity of the state machines, sizes, and that
ARCHITECTURE.md tells the truth about all of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "goqueue"

# Folder to the folders it may import; the same table stands in ARCHITECTURE.md.
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "log": {"model"},
    "core": {"model"},
    "node": {"model", "log", "core"},
    "wire": {"model"},
    "peer": {"model", "log", "core", "node", "wire"},
    "api": {"model", "node", "wire"},
    "client": {"model", "log", "wire"},
    "pipeline": {"model", "log", "wire", "client"},
    "cli": {"model", "log", "core", "node", "wire", "peer", "api", "client", "pipeline", "sim"},
    "sim": {"model", "log", "core", "node", "wire", "peer", "api", "client"},
}
# `api` hands the disk to nobody: what it needs of the log it gets through `node`.
IMPURE = {"asyncio", "logging", "os", "pathlib", "random", "secrets", "socket", "threading", "time", "uuid"}
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60

MODULES = sorted(PACKAGE.rglob("*.py"))


def _folder(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0]


def _imports(module: Path) -> set[str]:
    """Dotted names of everything a module imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_imports_only_what_its_folder_may(module: Path) -> None:
    folder = _folder(module)
    if folder == "__init__.py":
        return
    imported = {
        name.split(".")[1]
        for name in _imports(module)
        if name.startswith("goqueue.") and name.count(".") >= 1
    }
    folders = {name for name in imported if (PACKAGE / name).is_dir()}
    assert folders <= MAY_IMPORT[folder] | {folder}


@pytest.mark.parametrize("module", sorted((PACKAGE / "core").rglob("*.py")), ids=lambda path: path.name)
def test_state_machine_touches_no_clock_no_io_and_no_chance(module: Path) -> None:
    roots = {name.split(".")[0] for name in _imports(module)}
    assert not roots & IMPURE


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module_and_its_functions_are_small(module: Path) -> None:
    text = module.read_text()
    assert len(text.splitlines()) <= MODULE_LINES_MAX
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"


def test_there_is_no_central_object() -> None:
    assert not [path for path in MODULES if path.stem in ("manager", "utils", "helpers")]
    assert not (PACKAGE / "broker.py").exists()
    assert not (PACKAGE / "node" / "broker.py").exists()


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_bare_assert_stays_in_tests(module: Path) -> None:
    asserts = [
        node.lineno for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Assert)
    ]
    assert not asserts


def test_folder_table_of_architecture_page_is_the_truth() -> None:
    rows = re.findall(
        r"^\| `(\w+)/` \|[^|]*\|([^|]*)\|$", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE
    )
    written = {folder: set(re.findall(r"\w+", allowed)) - {"nothing"} for folder, allowed in rows}
    assert written == MAY_IMPORT
    assert set(written) == {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
