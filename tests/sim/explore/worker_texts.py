"""Copies of the worker core with other texts of its modules: its branches counted, or faults put in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numba

from sim import core_calls
from sim.core_calls import OFFER, RECEIVE, SEND, SHIPPED, CoreCode

__all__ = ["text_of", "worker_with"]


def _uncached(function: Any) -> Any:
    """Compile a function as `netsum_common.compiled.compiled` does, without its cache."""
    return numba.njit(
        nogil=True,
        error_model="numpy",
        no_cfunc_wrapper=True,
        no_cpython_wrapper=function.__name__.startswith("_"),
    )(function)


def text_of(module: str) -> str:
    """Return the text of a module of `host_agent.protocol`."""
    shipped = import_module(f"host_agent.protocol.{module}")
    assert shipped.__file__ is not None
    return Path(shipped.__file__).read_text(encoding="utf-8")


def worker_with(texts: Mapping[str, str], names: Mapping[str, Any] | None = None) -> CoreCode:
    """Return the worker core with other texts of "arrivals", "departures" and "recovery"; `names` are global to them."""
    assert core_calls.__file__ is not None
    entry = Path(core_calls.__file__).read_text(encoding="utf-8")
    if "recovery" in texts:  # The others import it.
        texts = {name: text_of(name) for name in ("arrivals", "departures")} | dict(texts)
    changes: dict[str, str] = {}
    for module in sorted(texts, reverse=True):
        text = texts[module]
        for old, new in changes.items():
            text = text.replace(old, new)
        changed = _module(f"sim.explore.changed_{module}", text, names or {})
        changes[f"from host_agent.protocol.{module} import"] = f"from {changed.__name__} import"
    for old, new in changes.items():
        entry = entry.replace(old, new)
    made: Any = _module("sim.explore.changed_entry", entry, {})
    code = {}
    if "arrivals" in texts:
        code["receive"] = _code(made.receive, RECEIVE)
    if "departures" in texts:
        code |= {"send": _code(made.send, SEND), "offer": _code(made.offer, OFFER)}
    return replace(SHIPPED, **code)


def _code(function: Any, signature: Any) -> Any:
    """Compile a function as `netsum_common.compiled.Routine` does, without its cache."""
    return numba.cfunc(signature, nogil=True, error_model="numpy")(function)


def _module(name: str, text: str, names: Mapping[str, Any]) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(names, uncached=_uncached)
    sys.modules[name] = module
    exec(compile(text.replace("@compiled\n", "@uncached\n"), f"<{name}>", "exec"), module.__dict__)
    return module
