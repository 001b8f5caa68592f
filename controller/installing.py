"""The order in which the parts of a job are written to its switches and deleted from them. No I/O.

A restart first deletes all admissions, from the leaves to the root, and then writes the new ones, from the root to the leaves.
So no switch admits packets of the old epoch when the first packet of the new epoch is admitted. A packet that a switch passes
up meets a switch that knows the packet's epoch, or admits no packet of the job. A switch that does not answer is skipped; its
error is raised when all other switches are done.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from controller.errors import ControllerError
from controller.jobs import Job

Parts = dict[str, Job]
"""A job's part on each switch, by the switch's name, in the order of writing: a parent before its children."""


def to_delete(parts: Parts) -> Iterator[tuple[str, Job]]:
    """Iterate over switches and their parts from the leaves to the root."""
    return reversed(parts.items())


@contextmanager
def passing_over_faults() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Yield a function that makes a context for one switch, which keeps a ControllerError; raise the first at the end."""
    faults: list[ControllerError] = []

    @contextmanager
    def one_switch() -> Iterator[None]:
        try:
            yield
        except ControllerError as fault:
            faults.append(fault)

    yield one_switch
    if faults:
        raise faults[0]
