"""What differs between switches beneath P4Runtime: how a compiled program is handed over, how ports are named.

Tables, groups, counters and all that is written into them are the same on every target.
"""

from collections.abc import Iterable
from pathlib import Path

from controller.targets import tofino


def device_config(program: Path) -> bytes:
    """Return a compiled program as its switch takes it in ``SetForwardingPipelineConfig``.

    `program`: what the compiler wrote: BMv2 JSON, or the ``.conf`` of a Tofino program, which names its other files. Any
    other file is taken to be packed already, and handed over as it is. Raises WrongProgramError if a file cannot be read, or
    is not what it should be.
    """
    if program.suffix == ".conf":
        return tofino.for_stratum(tofino.read_program(program))
    return tofino.read_file(program)


def require_reach(program: Path, ports: Iterable[int]) -> None:
    """Refuse a job whose ports a switch with this program cannot bring together.

    `program`: as for `device_config`. `ports`: of the job's workers, and of its parent in a tree of switches. Raises
    JobRefusedError: with the reason.
    """
    if program.suffix == ".conf":
        tofino.require_one_pipe(ports)
