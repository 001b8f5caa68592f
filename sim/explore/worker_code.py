"""The worker core's compiled functions, by address, so that one explorer runs the shipped core and changed ones."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from numba import types

from sim.explore.engine import worker_entry


@dataclass(frozen=True)
class WorkerCode:
    """A worker core's functions."""

    # receive, send, begin, offer: addresses for `sim.explore.engine.worker_call.call_worker`; the arguments are those of
    # `sim.explore.worker_entry`.
    receive: int
    send: int
    begin: int
    offer: int
    keep: tuple[Any, ...]  # Objects that must live as long as the code.


def _address_of(dispatcher: Any, arguments: int) -> int:
    signature = (types.int64,) * arguments
    dispatcher.compile(signature)
    found = dispatcher.overloads[signature]
    return int(found.library.get_pointer_to_function(found.fndesc.llvm_func_name))


def worker_code(receive: Any, send: Any, begin: Any, offer: Any) -> WorkerCode:
    """Compile the functions of `worker_entry`, or changed ones, and return where their code is."""
    return WorkerCode(
        _address_of(receive, 7),
        _address_of(send, 9),
        _address_of(begin, 4),
        _address_of(offer, 5),
        (receive, send, begin, offer),
    )


@cache
def shipped_worker() -> WorkerCode:
    """Return the shipped core, compiled or loaded from Numba's cache."""
    return worker_code(worker_entry.receive, worker_entry.send, worker_entry.begin, worker_entry.offer)
