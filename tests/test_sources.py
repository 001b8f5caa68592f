"""Results and machine code on disk are stale when a source changes that they depend on."""

import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

from netsum_common.machine_code import StampedCache
from netsum_common.sources import INSTALLED_PACKAGES, ROOT, closure, sources_stamp

PACKAGES = ("netsum_common", "controller", "host_agent", "sim", "topologies")
COMPILED = (
    "host_agent.codecs.raw",
    "host_agent.protocol.departures",
    "sim.network.engine.loop",
    "sim.explore.engine.expand",
    "sim.switch.ports.departures",
)
RESULTS = """
import sys
import tomllib
from pathlib import Path
import sim.experiments.running, sim.experiments.models
loaded = [Path(each.__file__) for each in sys.modules.values() if getattr(each, "__file__", None)]
import sim.experiments.store as store

def stamp():
    for module in list(sys.modules.values()):
        for thing in vars(module).values() if module.__name__.startswith(("netsum_common", "sim.experiments")) else ():
            if hasattr(thing, "cache_clear") and thing.__name__ != "_imported":  # A comment imports nothing.
                thing.cache_clear()
    return store.code_stamp(())

before, count = stamp(), 0
for path in loaded:
    if path.is_relative_to(Path.cwd()) and path.name != "__init__.py":
        text = path.read_text()
        path.write_text(text + "# changed\\n")
        if stamp() == before:
            print(path.relative_to(Path.cwd()))
        path.write_text(text)
        count += 1
assert stamp() == before
assert count > 100
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the sources."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_results_depend_on_every_module_that_a_run_imports(tree: Path) -> None:
    pytest.importorskip("pyarrow")
    command = [sys.executable, "-c", RESULTS]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    # Importing `sim.switch.ports.program_call` also imports its package, and so the drivers of real ports, which no run uses.
    drivers = {str(each.relative_to(tree)) for each in (tree / "sim/switch/ports").glob("*.py")}
    unused = drivers - {"sim/switch/ports/program_call.py"} | {
        *(f"netsum_common/{name}.py" for name in ("closing", "frames", "lent_program", "options", "pcap")),
        *(f"netsum_common/{name}.py" for name in ("rings", "sockets", "switch_options")),
    }
    assert set(done.stdout.splitlines()) <= unused, "the stamp of stored results leaves these out"


@pytest.mark.parametrize("name", [*COMPILED, "sim.switch.machine", "sim.explore.checkpoint"])
def test_a_line_in_any_module_of_the_closure_changes_the_stamp(tree: Path, name: str) -> None:
    module = tree / (name.replace(".", "/") + ".py")

    def stamp() -> str:
        sources_stamp.cache_clear()
        return sources_stamp(module, root=tree)

    before = stamp()
    for path in closure([module], tree):
        text = path.read_text()
        path.write_text(text + "# changed\n")
        assert stamp() != before, path
        path.write_text(text)
    assert stamp() == before


@pytest.mark.parametrize("name", COMPILED)
def test_machine_code_depends_on_what_its_module_imports(name: str) -> None:
    module = import_module(name)
    functions: list[Any] = [
        each for each in vars(module).values() if isinstance(each, Dispatcher) and each.__module__ == name
    ]
    caches = [each._cache for each in functions if isinstance(each._cache, StampedCache)]
    assert caches
    stamp = sources_stamp(Path(str(module.__file__)))
    assert {each._impl.locator.get_source_stamp() for each in caches} == {stamp}


def test_packages_of_others_beside_an_installed_netsum_change_no_stamp(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    for name, text in {
        "host_agent/a.py": "import numpy\nfrom netsum_common import b\n",
        "netsum_common/b.py": "import setuptools\n",
        "numpy/__init__.py": "",
        "setuptools/__init__.py": "",
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    found = closure([site / "host_agent/a.py"], site)
    assert [str(each.relative_to(site)) for each in found] == ["host_agent/a.py", "netsum_common/b.py"]


def test_the_packages_of_an_installed_netsum_are_those_of_its_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["importlinter"]["root_packages"]) == INSTALLED_PACKAGES


def test_imports_in_functions_and_of_submodules_and_packages_count(tmp_path: Path) -> None:
    texts = {
        "a.py": '"""One that\nimport of nothing.\n"""\nimport b\nfrom pack import (  # two\n    c,\n    name,\n)\n',
        "b.py": "def late():\n    from pack.d import thing\n    return thing\n",
        "pack/__init__.py": "name = 1\n",
        "pack/c.py": "import os\nimport a\n",
        "pack/d.py": "thing = 1\n",
        "unused.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = closure([tmp_path / "a.py"], tmp_path)
    assert [str(each.relative_to(tmp_path)) for each in found] == sorted(set(texts) - {"unused.py"})
