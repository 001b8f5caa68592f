"""Paths of the compiled P4 programs."""

import sysconfig
from dataclasses import dataclass
from pathlib import Path

from host_agent.errors import NetsumError

BUILD = Path(__file__).resolve().parents[1] / "p4" / "build"  # In a source checkout.
INSTALLED = Path(sysconfig.get_path("data")) / "share" / "netsum"
"""Folder of a wheel's data files (pyproject.toml, data-files)."""

LANES = (64, 256)  # int32 values a packet carries on Ethernet; one compiled program each.
LOCAL_LANES = 1024  # For a worker and its switch on one machine, where no link limits the MTU.


class ProgramMissingError(NetsumError):
    """A compiled program is not where it should be."""


@dataclass(frozen=True)
class CompiledProgram:
    """A compiled P4 program."""

    json: Path  # p4c's output for BMv2; the embedded engine reads the same file.
    p4info: Path  # The names and numbers of its tables, for P4Runtime.


def compiled_program(lanes: int) -> CompiledProgram:
    """Return the aggregation program with `lanes` values a packet.

    Raises ValueError if it is not built for that many. Raises ProgramMissingError if the files are not there.
    """
    if lanes not in (*LANES, LOCAL_LANES):
        choices = ", ".join(map(str, LANES))
        raise ValueError(f"the program is built for {choices} or {LOCAL_LANES} lanes, not {lanes}")
    stem = (BUILD if BUILD.is_dir() else INSTALLED) / f"netsum_v1model_{lanes}"
    program = CompiledProgram(stem.with_suffix(".json"), stem.with_suffix(".p4info.txtpb"))
    for file in (program.json, program.p4info):
        if not file.is_file():
            raise ProgramMissingError(
                f"{file} is missing: install netsum again, or run `make p4` in its source checkout (needs p4c)"
            )
    return program
