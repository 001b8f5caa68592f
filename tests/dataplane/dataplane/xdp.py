"""The kernel as a target: the program as XDP, run by the kernel's test runs, without any interface."""

import os
from pathlib import Path

from netsum_common.targets import TARGETS
from sim.switch import ir
from sim.switch.bpf import syscall
from sim.switch.bpf.switch import XdpSwitch

from .embedded import EmbeddedTarget, OpenChassis
from .target import CPU_PORT


def why_not() -> str | None:
    """Name the missing parts for BPF here."""
    if os.geteuid() != 0:
        return "BPF programs need root"
    try:
        syscall.Map("probe", syscall.ARRAY, 4, 4, 1).close()
    except syscall.BpfError as error:
        return str(error)
    return None


class XdpChassis(OpenChassis):
    """A chassis whose programs run in the kernel."""

    def engine(self, program: ir.Program, cache_dir: Path | None) -> XdpSwitch:
        return XdpSwitch(program, cache_dir, cpu_port=CPU_PORT)


class XdpTarget(EmbeddedTarget):
    """The kernel with the compiled program of v1model in it."""

    kind = TARGETS["xdp"]

    def __init__(self, lanes: int) -> None:
        super().__init__(lanes, chassis=XdpChassis)

    def close(self) -> None:
        super().close()
        assert isinstance(self._chassis.switch, XdpSwitch)
        self._chassis.switch.close()
