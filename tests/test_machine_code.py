"""Machine code on disk: no process loads code of older sources, or for other arguments, whatever others are writing."""

import importlib.util
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from netsum_common.machine_code import StampedCache
from netsum_common.sources import sources_stamp

TRIED = ("0.68",)
"""Minor versions of Numba whose undocumented classes `netsum_common.machine_code` was tried with."""

SOURCE = """
from netsum_common.compiled import compiled

@compiled
def plus(number, more):
    return number + more + {constant}
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], ModuleType]:
    """A module of the test's own, with its constant."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    # Bytecode of a text of the same size from the same second counts as current.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "added.py"

    def load(constant: int) -> ModuleType:
        path.write_text(SOURCE.format(constant=constant))
        sources_stamp.cache_clear()  # As in another process.
        spec = importlib.util.spec_from_file_location("added", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "added", module)
        spec.loader.exec_module(module)
        return module

    return load


def cache_of(module: ModuleType) -> Any:
    cache = module.plus._cache
    assert isinstance(cache, StampedCache)
    return cache


def test_numba_is_a_version_that_the_cache_was_tried_with() -> None:
    """The cache derives from classes of `numba.core.caching`, which Numba changes without notice."""
    installed = version("numba")
    assert installed.rpartition(".")[0] in TRIED, (
        f"Numba {installed}: compare its numba/core/caching.py with netsum_common/machine_code.py, whose classes derive from "
        "it, run this file's other tests, then add the version to TRIED"
    )


def test_an_index_names_no_code_that_is_not_written_yet(
    load: Callable[[int], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a process writes the code of changed sources, another finds nothing: neither that code nor the older one."""
    assert load(1).plus(1, 1) == 3
    changed = load(2)
    seen: list[object] = []
    cache = cache_of(changed)
    files = cache._cache_file
    save = files._save_data

    def look_before(name: str, data: Any) -> None:
        seen.append(list(files._load_index()))
        seen.append((Path(cache.cache_path) / name).exists())
        save(name, data)

    monkeypatch.setattr(files, "_save_data", look_before)
    assert changed.plus(1, 1) == 4
    assert seen == [[], False]


def test_signatures_that_two_processes_compile_at_once_have_files_of_their_own(
    load: Callable[[int], ModuleType],
) -> None:
    whole, broken = load(1), load(1)
    for module in (whole, broken):  # Both look for the code before either has written any.
        assert cache_of(module)._cache_file._load_index() == {}
    index = Path(cache_of(whole).cache_path)
    assert whole.plus(1, 1) == 3
    (kept,) = index.glob("*.nbi")
    kept.unlink()  # The other process has not seen it.
    assert broken.plus(0.5, 1) == 2.5
    assert len(list(index.glob("*.nbc"))) == 2


def test_code_of_older_sources_is_removed(load: Callable[[int], ModuleType]) -> None:
    for constant in (1, 2, 3):
        module = load(constant)
        assert module.plus(1, 1) == 2 + constant
    assert len(list(Path(cache_of(module).cache_path).glob("*.nbc"))) == 1
