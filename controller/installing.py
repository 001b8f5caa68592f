"""In which order the parts of a job are written to its switches, and deleted from them. No I/O.

A restart deletes all admissions, from the leaves to the root, before it writes the first, from the root to the leaves. So no
packet of the job's old epoch is admitted anywhere when the first of its new one is: each meets switches above it that know its
epoch, or none that admits it. A switch that does not answer is passed over, and the error is raised when all others are done.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from controller.errors import ControllerError
from controller.jobs import Job

Parts = dict[str, Job]
"""What each switch holds of a job, by its name, in the order in which they are written: a switch after the one above it."""


def to_delete(parts: Parts) -> Iterator[tuple[str, Job]]:
    """Iterate over switches and their parts from the leaves to the root."""
    return reversed(parts.items())


@contextmanager
def passing_over_faults() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Give a context for each switch, in which a ControllerError is kept; the first is raised at the end."""
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
