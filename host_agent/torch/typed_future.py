"""Futures of a list of tensors, for callers in C++.

A future made in Python holds a Python object, whatever its value. DDP's reducer accepts such a future: it calls Python to find
the tensors, and Ctrl-C during that call becomes a RuntimeError. DDP's built-in communication hooks do not accept it.
TorchScript can make a future of type ``List[Tensor]``: its interpreter suspends a function that waits, so no thread is held.
"""

import functools
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import graph

from host_agent.torch import tracing

_SOURCE = """
def wait(done: Future[Tensor], outputs: List[Tensor]) -> List[Tensor]:
    done.wait()
    return outputs

def after(done: Future[Tensor], outputs: List[Tensor]) -> Future[List[Tensor]]:
    return torch.jit.fork(wait, done, outputs)
"""
_ENGINE = graph._engine_run_backward.__code__


def called_by_engine() -> bool:
    """Return whether the caller's caller is autograd's engine: code in C++, such as DDP's reducer.

    The frames of `tracing` and of Dynamo, which wrap methods, do not count.
    """
    frame = sys._getframe(2)
    while frame is not None and (
        frame.f_globals.get("__name__") == tracing.__name__
        or frame.f_globals.get("__package__") == "torch._dynamo"
    ):
        frame = frame.f_back  # type: ignore[assignment]  # None at the end of the stack
    return frame is not None and frame.f_code is _ENGINE


def typed_future(done: torch.futures.Future[Any], outputs: Sequence[Tensor]) -> torch.futures.Future[Any]:
    """Return a future of type ``List[Tensor]``.

    Callbacks on it run in PyTorch's inter-op threads, which also resolve it: a callback that blocks until another such future is
    done could wait for ever. So it is for callers in C++, which do not block.

    `done`: completes first; its error is the future's, its value is not used. `outputs`: the value. On the CPU.
    """
    future: torch.futures.Future[Any] = _functions().after(done, list(outputs))
    return future


@functools.cache
def _functions() -> Any:
    return torch.jit.CompilationUnit(_SOURCE)
