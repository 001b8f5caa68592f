"""The differences between switches that P4Runtime does not hide: the form of a compiled program, and the names of ports.

Tables, groups and counters, and their contents, are the same on every target.
"""

from collections.abc import Iterable
from pathlib import Path

from controller.targets import tofino


def device_config(program: Path) -> bytes:
    """Return a compiled program in the form that its switch takes in ``SetForwardingPipelineConfig``.

    `program`: the compiler's output: BMv2 JSON, or the ``.conf`` of a Tofino program, which names the program's other files.
    Any other file is taken to be packed already, and returned unchanged. Raises WrongProgramError if a file cannot be read, or
    a ``.conf`` does not describe a program.
    """
    if program.suffix == ".conf":
        return tofino.for_stratum(tofino.read_program(program))
    return tofino.read_file(program)


def require_reach(program: Path, ports: Iterable[int]) -> None:
    """Refuse a job whose ports do not share memory on a switch with this program.

    `program`: as for `device_config`. `ports`: the ports of the job's workers and, in a tree of switches, of its parent.
    Raises JobRefusedError with the reason.
    """
    if program.suffix == ".conf":
        tofino.require_one_pipe(ports)
