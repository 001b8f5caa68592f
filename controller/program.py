"""The control surface that the controller requires of a P4 program, and the files of a compiled one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controller import entries
from controller.errors import WrongProgramError
from controller.p4info import ProgramNames, read_p4info
from netsum_common.targets import ProgramFileError, read_capabilities, target_of

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


def require_control_surface(names: ProgramNames, where: str) -> None:
    """Refuse a program that this controller cannot drive.

    `where`: its P4Info file, for the message. Raises WrongProgramError that names all missing parts.
    """
    lacks = names.missing(TABLES, entries.COUNTERS)
    if lacks:
        raise WrongProgramError(
            f"{where} is not netsum's aggregation program: it has no {', no '.join(lacks)}"
        )


class CompiledFiles:
    """A compiled aggregation program: the files a switch is given, the names in them, and what the program can do.

    `program`, `p4info`: the compiled program (see `Target.device_config`) and its P4Info in protobuf text form, beside which
    are its capabilities. Raises WrongProgramError if a file cannot be read, or is not an aggregation program's.
    """

    def __init__(self, program: Path, p4info: Path) -> None:
        self.path = program
        self.p4info = read_p4info(p4info)
        self.names = ProgramNames(self.p4info)
        require_control_surface(self.names, str(p4info))
        with reading_programs():
            self.capabilities = read_capabilities(p4info)
            self.target = target_of(self.capabilities)

    def device_config(self) -> bytes:
        """Return the program in the form that the switch loads; `WrongProgramError` if the file cannot be read."""
        with reading_programs():
            return self.target.device_config(self.path)


@contextmanager
def reading_programs() -> Iterator[None]:
    """Raise WrongProgramError for a file of a program that cannot be read in the block."""
    try:
        yield
    except ProgramFileError as fault:
        raise WrongProgramError(str(fault)) from None
