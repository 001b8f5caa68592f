"""Changed copies of the worker core's modules."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from sim.explore.engine import worker_entry
from sim.explore.worker_code import WorkerCode, worker_code

__all__ = ["changed_worker", "text_of", "worker_with"]

_COMPILED = "from host_agent.compiled import"
_UNCACHED = "from sim.explore.faults.uncached import"


def text_of(module: str) -> str:
    """Return the text of a module of `host_agent.protocol`."""
    shipped = import_module(f"host_agent.protocol.{module}")
    assert shipped.__file__ is not None
    return Path(shipped.__file__).read_text(encoding="utf-8")


def changed_worker(module: str, changes: Sequence[tuple[str, str]]) -> WorkerCode:
    """Return the worker core with pieces of one of its modules' text replaced.

    Parameters
    ----------
    module
        "arrivals" or "departures" of `host_agent.protocol`.
    changes
        (text as it stands there, text in its place).

    Raises
    ------
    AssertionError
        A text does not stand there exactly once.
    """
    text = text_of(module)
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {module}"
        text = text.replace(old, new)
    return worker_with({module: text})


def worker_with(texts: Mapping[str, str], names: Mapping[str, Any] | None = None) -> WorkerCode:
    """Return the worker core with other texts of "arrivals", "departures" or both; `names` are global to them."""
    assert worker_entry.__file__ is not None
    entry = Path(worker_entry.__file__).read_text(encoding="utf-8")
    entry = entry.replace(
        "from sim.explore.engine.compiled import carray, compiled, pointer",
        f"from sim.explore.engine.compiled import carray, pointer\n{_UNCACHED} compiled",
    )
    for module, text in texts.items():
        changed = _module(
            f"sim.explore.faults.changed_{module}", text.replace(_COMPILED, _UNCACHED), names or {}
        )
        entry = entry.replace(f"from host_agent.protocol.{module} import", f"from {changed.__name__} import")
    made: Any = _module("sim.explore.faults.changed_entry", entry, {})
    return worker_code(
        made.receive if "arrivals" in texts else worker_entry.receive,
        made.send if "departures" in texts else worker_entry.send,
        worker_entry.begin,
        made.offer if "departures" in texts else worker_entry.offer,
    )


def _module(name: str, text: str, names: Mapping[str, Any]) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module
    exec(compile(text, f"<{name}>", "exec"), module.__dict__)
    return module
