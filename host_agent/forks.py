"""Objects that are of one process: a child that this process forks inherits them and cannot use them.

Their threads are not in the child, their locks may be held there for ever, and what the child sends is the parent's to a switch
and a controller. Children that are made by spawn, forkserver or `subprocess` inherit none of them.
"""

import gc
import os
import weakref
from abc import ABC, abstractmethod
from typing import Final

INHERITED: Final = (
    "this process was forked from one that had joined a job, whose connections do not survive that: reduce in the parent, or "
    "start this process by spawn or forkserver, and join"
)


class OfOneProcess(ABC):
    """An object that each forked child forgets."""

    def __init__(self) -> None:
        _all.add(self)

    @abstractmethod
    def close_in_child(self) -> None:
        """Close the parent's descriptors, replace locks, and refuse further use; runs in a forked child."""


_all: weakref.WeakSet[OfOneProcess] = weakref.WeakSet()


def _close_all_in_child() -> None:
    # A garbage collection in the child would end inherited objects of gRPC, which crash without their threads.
    gc.freeze()
    for each in list(_all):
        each.close_in_child()


os.register_at_fork(after_in_child=_close_all_in_child)
