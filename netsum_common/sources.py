"""The modules of netsum that a module imports, and a hash of them: results and machine code on disk are stale when it changes."""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["INSTALLED_PACKAGES", "ROOT", "closure", "sources_stamp"]

ROOT: Final = Path(__file__).resolve().parents[1]

INSTALLED_PACKAGES: Final = frozenset(
    ("controller", "host_agent", "netsum", "netsum_common", "sim", "topologies")
)
"""Packages of netsum's wheel: others in the same folder do not count, or each `pip install` would outdate all machine code."""
_SHARED_FOLDERS: Final = ("site-packages", "dist-packages")

_IMPORT: Final = re.compile(rb"^[ \t]*((?:from|import) [^\n(]*(?:\([^)]*\))?)", re.MULTILINE)
"""Lines where an import may stand: to parse these alone takes a fifth of the time of whole modules."""


def closure(modules: Iterable[Path], root: Path = ROOT) -> list[Path]:
    """Return modules and all that they import, directly or through others, as far as these are files below `root`.

    In a folder of installed packages only netsum's own count.
    The ``__init__`` of a package counts where a name is imported from it, not where only a module of the package is.
    """
    found: set[Path] = set()
    left = [path.resolve() for path in modules]
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imported(path, root)
    return sorted(found)


@cache
def sources_stamp(*modules: Path, root: Path = ROOT) -> str:
    """Return a hash of the text of all modules in the closure of `modules`, which is read once in a process."""
    digest = hashlib.sha256()
    for path in closure(modules, root):
        name = path.relative_to(root) if path.is_relative_to(root) else path
        digest.update(str(name).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def _imported(path: Path, root: Path) -> tuple[Path, ...]:
    text = path.read_bytes()
    try:
        tree = ast.parse(b"\n".join(_IMPORT.findall(text)))
    except SyntaxError:  # A line of a docstring that begins like an import.
        tree = ast.parse(text)
    return tuple(dict.fromkeys(_find_imported(tree, root)))


def _find_imported(tree: ast.AST, root: Path) -> Iterator[Path]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            # A name may be a module of the package, too.
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        for name in names:
            if root.name in _SHARED_FOLDERS and name.partition(".")[0] not in INSTALLED_PACKAGES:
                continue
            place = root.joinpath(*name.split("."))
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file():
                    yield file
