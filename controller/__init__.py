"""The control plane: jobs, slots, admission and forwarding of a netsum switch over P4Runtime.

`SwitchController` needs gRPC. The pure parts (`controller.slots`, `controller.jobs`, `controller.entries`) do not, so names
are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from controller.errors import (
        ControllerError,
        JobRefusedError,
        NotPrimaryError,
        SwitchRefusedError,
        SwitchUnreachableError,
        UnknownJobError,
        WrongProgramError,
    )
    from controller.jobs import Job, WorkerEndpoint
    from controller.switch_controller import SwitchController

__all__ = [
    "ControllerError",
    "Job",
    "JobRefusedError",
    "NotPrimaryError",
    "SwitchController",
    "SwitchRefusedError",
    "SwitchUnreachableError",
    "UnknownJobError",
    "WorkerEndpoint",
    "WrongProgramError",
]

_HOMES = {"Job": "jobs", "WorkerEndpoint": "jobs", "SwitchController": "switch_controller"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'controller' has no attribute {name!r}")
    return getattr(import_module(f"controller.{_HOMES.get(name, 'errors')}"), name)
