"""The targets, a file each: kinds of switches that run the P4 program, and what they and their programs can do.

P4Runtime hides the rest: tables, groups and counters, and their contents, are the same on every target.
"""

from typing import Final

from netsum_common.targets.bmv2 import Bmv2
from netsum_common.targets.capabilities import Capabilities, read_capabilities
from netsum_common.targets.embedded import Embedded
from netsum_common.targets.target import ProcessTarget, ProgramFileError, SwitchSetup, Target
from netsum_common.targets.tofino import Tofino
from netsum_common.targets.xdp import Xdp

__all__ = [
    "PROCESS_TARGETS",
    "TARGETS",
    "Capabilities",
    "ProcessTarget",
    "ProgramFileError",
    "SwitchSetup",
    "Target",
    "read_capabilities",
    "target_of",
]

TARGETS: Final[dict[str, Target]] = {each.name: each for each in (Embedded(), Xdp(), Bmv2(), Tofino())}
"""Every target, by the users' name."""

PROCESS_TARGETS: Final = {name: each for name, each in TARGETS.items() if isinstance(each, ProcessTarget)}
"""The targets that testbeds can start."""


def target_of(capabilities: Capabilities) -> Target:
    """Return the first target that runs programs of an architecture; the others differ in nothing that a controller sees.

    Raises
    ------
    ProgramFileError
        There is none.
    """
    for target in TARGETS.values():
        if capabilities.architecture in target.architectures:
            return target
    known = ", ".join(dict.fromkeys(name for target in TARGETS.values() for name in target.architectures))
    raise ProgramFileError(
        f"the program is compiled for the architecture {capabilities.architecture!r}: expected one of {known}"
    )
