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


class _PausedCollection:
    """The collection of garbage, paused from before a fork until the child has set what it inherits apart.

    A collection in the child would end inherited objects of gRPC, which crash or wait for ever without their threads. It may
    begin with any allocation, also in what other modules do after a fork.
    """

    def __init__(self) -> None:
        self._forking = 0  # Threads may fork at the same time.
        self._was_enabled = False

    def before(self) -> None:
        self._was_enabled |= gc.isenabled()
        self._forking += 1
        gc.disable()

    def after_in_parent(self) -> None:
        self._forking -= 1
        if self._forking == 0:
            self._end()

    def after_in_child(self) -> None:
        self._forking = 0
        gc.freeze()
        self._end()

    def _end(self) -> None:
        if self._was_enabled:
            gc.enable()
        self._was_enabled = False


_collection = _PausedCollection()


def _close_all_in_child() -> None:
    _collection.after_in_child()
    for each in list(_all):
        each.close_in_child()


os.register_at_fork(
    before=_collection.before,
    after_in_parent=_collection.after_in_parent,
    after_in_child=_close_all_in_child,
)
