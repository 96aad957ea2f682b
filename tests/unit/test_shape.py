"""The repository's own rules: packaging, sizes, imports, and that it speaks of itself alone."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import gateway

ROOT = Path(__file__).parents[2]
PACKAGES = ("backends", "deploy", "gateway", "policies", "tiering")
CODE = (*PACKAGES, "tests")
LIMIT, GLANCE = 500, 400
LONG: dict[str, str] = {}  # files over GLANCE lines, each with its reason
TEXT = {".c", ".conf", ".html", ".json", ".jsonl", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
SKIPPED = {"build", "dist", "node_modules", "results", "bodies", "bin", "__pycache__"}
# Written in halves, so that this file passes its own test.
FORBIDDEN = re.compile(
    "|".join(
        (
            "/wor" + "k/",
            r"\.\./sha" + "red",
            "sha" + "red/(facts|DESIGN|bench|engines|vectors|captures)",
            "issu" + "es show",
            "(?<!emit-)ind" + "ex-url",
            "file" + ":///opt",
            "pypi" + r"\.org/simple",
        )
    )
)
IMPORT_ALL = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"


def files(*folders: str) -> Iterator[Path]:
    """Files of the repository below some folders, without what is built or hidden."""
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            parts = path.relative_to(ROOT).parts
            if path.is_file() and not any(part in SKIPPED or part.startswith(".") for part in parts):
                yield path


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def needs(name: str, path: Path, known: frozenset[str]) -> set[str]:
    """Modules of ours that must be imported for `name` to be: what it names, and the packages which that lies in."""
    found = set()
    for node in import_time(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & known or {node.module}
    packages = {parent for target in found for parent in parents(target)}
    return ((found | packages) & known) - {name} - set(parents(name))


def import_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run at import: all but bodies of functions and what is for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        lazy = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not lazy and not typing_only:
            yield node
            yield from import_time(node)


def parents(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def project() -> dict[str, object]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def test_import_gateway_is_ours() -> None:
    assert Path(gateway.__file__ or "").parent == ROOT / "gateway"


def test_never_uploaded() -> None:
    assert "Private :: Do Not Upload" in project()["classifiers"]  # type: ignore[operator]
    assert "Private :: Do Not Upload" in importlib.metadata.metadata("headrace").get_all("Classifier", [])


def test_file_sizes() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in files(*CODE)
        if path.suffix in {".py", ".c", ".sh"}
    }
    assert {name: size for name, size in sizes.items() if size > LIMIT} == {}
    assert {name for name, size in sizes.items() if size > GLANCE} == set(LONG)


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in files(*CODE) if path.suffix == ".py"}
    assert [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_module_imports_alone() -> None:
    """Any order of imports works when all modules can be imported and none needs itself; quicker than trying each."""
    modules = {module(path): path for path in files(*PACKAGES) if path.suffix == ".py" and path.stem != "__main__"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, *sorted(modules)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    sorter = TopologicalSorter({name: needs(name, path, frozenset(modules)) for name, path in modules.items()})
    sorter.prepare()  # raises CycleError, which names the cycle


def compiled_modules() -> set[str]:
    found = set(re.findall(r'^    "([a-z_/0-9]+\.py)",$', (ROOT / "setup.py").read_text(), re.MULTILINE))
    assert found
    return found


def test_compiled_code_has_no_effects_in_the_bounds_of_a_slice() -> None:
    """mypyc evaluates them twice when what is cut is not a list, a tuple or a string."""
    slices = [
        (path, node.slice)
        for path in compiled_modules()
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)
    ]
    calls = {(path, ast.unparse(n.func)) for path, cut in slices for n in ast.walk(cut) if isinstance(n, ast.Call)}
    assert {call for call in calls if call[1] not in {"len", "max", "min"}} == set()


def test_who_subclasses_a_compiled_class_is_compiled() -> None:
    compiled = compiled_modules()
    assert all((ROOT / path).exists() for path in compiled)
    trees = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in files(*PACKAGES) if path.suffix == ".py"
    }
    classes = {
        name: [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)] for name, tree in trees.items()
    }
    theirs = {node.name for name in compiled for node in classes[name]}
    heirs = {
        f"{name}: {node.name}"
        for name, nodes in classes.items()
        for node in nodes
        if name not in compiled and theirs & {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    }
    assert heirs == set()


def test_the_shared_vocabulary_needs_the_standard_library_alone() -> None:
    tree = ast.parse((ROOT / "backends/contracts.py").read_text())
    named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in named} <= sys.stdlib_module_names


def test_speaks_of_itself_alone() -> None:
    tops = [path for path in ROOT.iterdir() if path.suffix in TEXT or path.name == "Makefile"]
    texts = [*tops, *(path for path in files(*CODE, "docs", "requirements") if path.suffix in TEXT)]
    hits = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in texts
        if (found := FORBIDDEN.search(path.read_text(errors="replace")))
    ]
    assert hits == []


@pytest.mark.parametrize("extra", [None, "dev", "precise"])
def test_lock_covers_the_requirements(extra: str | None) -> None:
    wanted = project()["dependencies"] if extra is None else project()["optional-dependencies"][extra]  # type: ignore[index]
    locked = dict(re.findall(r"^([\w.-]+)==([^ ;]+)", (ROOT / "requirements/dev.txt").read_text(), re.MULTILINE))
    assert isinstance(wanted, list)
    for requirement in map(Requirement, wanted):
        if requirement.name != "headrace":
            assert requirement.specifier.contains(locked.get(requirement.name.lower(), "0")), (
                f"{requirement}: make lock"
            )
