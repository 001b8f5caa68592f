"""The control surface that the controller requires of a P4 program, and the sizes that a program's P4Info shows."""

import re
from collections.abc import Iterable
from pathlib import Path

from controller import entries
from controller.errors import WrongProgramError
from controller.p4info import ProgramNames, read_p4info
from controller.targets import device_config
from host_agent.wire.constants import POOL_SLOTS, POOL_VERSIONS

Surface = dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]]

TABLES: Surface = {
    entries.WORKER_ADMISSION: (
        ("ingress_port", "ipv4_src", "job_id", "worker_id", "token"),
        {
            "admit": (
                "worker_bit",
                "full_mask",
                "num_workers",
                "epoch",
                "pool_base",
                "pool_indices",
                "mcast_group",
            )
        },
    ),
    entries.JOB_QUORUM: (("job_id",), {"set_quorum": ("workers",)}),
    entries.SWITCH_ADDRESS: (("address",), {"own_address": ("mac",)}),
    entries.COPY_REWRITE: (("job_id", "worker_id"), {"rewrite": ("dst_mac", "dst_ip", "dst_port")}),
    entries.L2_FORWARD: (("dst",), {"forward": ("port",), "flood": ("mcast_group",), "drop": ()}),
    entries.L3_ROUTE: (("dst",), {"route": ("port", "src_mac", "dst_mac")}),
}
"""Table to (key fields, action to parameters)."""

_LANE = re.compile(r"\.lane_\d+(\.held)?$")
"""The end of a lane register's full name: on v1model all lanes are in one control, on TNA each lane has its own."""


def require_control_surface(names: ProgramNames, where: str) -> None:
    """Refuse a program that this controller cannot drive.

    `where`: its P4Info file, for the message. Raises WrongProgramError that names all missing parts.
    """
    lacks = names.missing(TABLES, entries.COUNTERS)
    if not lanes_of(names):
        lacks.append("registers lane_0, lane_1, …")
    if lacks:
        raise WrongProgramError(
            f"{where} is not netsum's aggregation program: it has no {', no '.join(lacks)}"
        )


NEXT_PASS = "next_pass"  # Table of programs through which a packet passes more than once.


def lanes_of(names: ProgramNames) -> int:
    """Return how many int32 values a packet carries: the register arrays, one for each value of a pass, times the passes."""
    return len(_lane_registers(names)) * passes_of(names)


def slots_of(names: ProgramNames) -> int:
    """Return how many slots the program has."""
    return _cells_of_a_lane(names) // passes_of(names) // POOL_VERSIONS


def passes_of(names: ProgramNames) -> int:
    """Return how often a packet passes through the program; each register array has a cell for each pool index and pass."""
    if NEXT_PASS not in names.tables or not _lane_registers(names):
        return 1
    return _cells_of_a_lane(names) // POOL_VERSIONS // POOL_SLOTS


def makes_header_only(registers: Iterable[str]) -> bool:
    """Return whether a program of one pass with these registers leaves out lanes of a RESULT that a worker does not need."""
    return any(name.endswith((".slot_header_back", ".slot_workers")) for name in registers)


def _cells_of_a_lane(names: ProgramNames) -> int:
    return names.register_size(_lane_registers(names)[0])


def _lane_registers(names: ProgramNames) -> list[str]:
    return [name for name in names.registers if _LANE.search(name)]


class CompiledFiles:
    """A compiled aggregation program: the files a switch is given, and the names in them.

    `program`, `p4info`: the compiled program (see `controller.targets.device_config`) and its P4Info in protobuf text form.
    Raises WrongProgramError if the P4Info cannot be read, or is not an aggregation program's.
    """

    def __init__(self, program: Path, p4info: Path) -> None:
        self.path = program
        self.p4info = read_p4info(p4info)
        self.names = ProgramNames(self.p4info)
        require_control_surface(self.names, str(p4info))
        self.lanes = lanes_of(self.names)
        self.slots = slots_of(self.names)
        self.knows_trees = entries.JOB_PARENT in self.names.tables
        self.header_only = passes_of(self.names) == 1 and makes_header_only(self.names.registers)

    def device_config(self) -> bytes:
        """Return the program in the form that the switch loads; `WrongProgramError` if the file cannot be read."""
        return device_config(self.path)
