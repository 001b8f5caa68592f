"""All errors of netsum have one root, so that ``except NetsumError`` catches them."""

import ast
import importlib
from pathlib import Path

import pytest

from netsum_common.errors import NetsumError

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("netsum", "netsum_common", "host_agent", "controller", "sim", "topologies")
DEFECTS = {"TransitionError"}
"""Raised where the program itself is wrong; a caller has nothing to catch."""


def error_classes() -> list[tuple[str, str]]:
    """Module and name of every class that is called an error or an exception."""
    found = []
    for file in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith(("Error", "Exception")):
                found.append((module, node.name))
    return found


def test_error_classes_are_found() -> None:
    packages = {module.partition(".")[0] for module, _ in error_classes()}
    assert packages == set(PACKAGES)


@pytest.mark.parametrize(("module", "name"), error_classes())
def test_an_error_is_a_netsum_error(module: str, name: str) -> None:
    pytest.importorskip("torch" if {"compression", "torch"} & set(module.split(".")) else "numpy")
    error = getattr(importlib.import_module(module), name)
    assert issubclass(error, NetsumError) != (name in DEFECTS)
