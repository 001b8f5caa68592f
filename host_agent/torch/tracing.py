"""Keeps `torch.compile` out of the process group: compiled programs break their graph there, and call it as it is."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def untraced(function: _Function) -> _Function:
    """Exclude a function and its callees from Dynamo's tracing.

    As `torch.compiler.disable` does, which would load Dynamo and take seconds: the exclusion is applied once a program has
    loaded Dynamo by itself.
    """
    excluded: Callable[..., Any] | None = None

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal excluded
        if excluded is None:
            if "torch._dynamo" not in sys.modules:
                return function(*arguments, **options)
            excluded = torch.compiler.disable(function)
        return excluded(*arguments, **options)

    # Dynamo looks for this attribute before it traces into a function.
    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def untraced_methods(cls: _Class) -> _Class:
    """Exclude the public methods of a class, and so their callees, from Dynamo's tracing."""
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) and not member.__name__.startswith("_"):
            setattr(cls, name, untraced(member))
    return cls
