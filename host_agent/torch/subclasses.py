"""Tensors of subclasses that wrap other tensors: their class makes a call of a process group for each part, as in PyTorch's own.

These call operators, which PyTorch's dispatcher hands to the class. netsum's methods are called directly.
"""

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from host_agent.torch.through_gloo import AllDone
from host_agent.torch.work import NetsumWork


class _OnParts(TorchDispatchMode):
    """Makes a call, by `begin`, where a class calls the operator with parts."""

    def __init__(self, begin: Callable[..., Any]) -> None:
        super().__init__()
        self._begin, self.works = begin, list[Any]()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(each, "__tensor_flatten__") for each in types):
            return NotImplemented  # The class comes next.
        if types or operator.namespace != "c10d":
            return operator(*args, **(kwargs or {}))
        # An operator's tensors come before its group.
        tensors = itertools.takewhile(lambda each: not isinstance(each, torch.ScriptObject), args)
        self.works.append(self._begin(*tensors))
        work = self.works[-1].boxed()
        return (args[0], work) if len(operator._schema.returns) > 1 else work


def for_subclasses(cls: Any) -> Any:
    """Let the calls of a process group's class take tensors of subclasses, and do nothing with those that have no values."""
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if hasattr(dist.ProcessGroup, name) and not name.startswith("__"):
            setattr(cls, name, _dispatched(name, method))
    return cls


def _dispatched(name: str, method: Any) -> Any:
    @functools.wraps(method)
    def call(group: Any, *arguments: Any, **options: Any) -> Any:
        leaves = tree_leaves(arguments)
        if any(isinstance(each, Tensor) and (each.is_meta or hasattr(each, "fake_mode")) for each in leaves):
            return NetsumWork(name, [], [])  # There is nothing to do, as over PyTorch's own groups.
        if not any(map(is_traceable_wrapper_subclass, leaves)):
            return method(group, *arguments, **options)
        with _OnParts(lambda *parts: method(group, *parts, *arguments[len(parts) :], **options)) as made:
            work = getattr(dist.ProcessGroup(group.rank(), group.size()), name)(*arguments, **options)
        return AllDone(made.works) if made.works else work  # The class returns the work of one part.

    return call
