"""A switch in this process: the engine with the P4 program, programmed by the controller's own code, without gRPC."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

from controller.jobs import Job
from controller.switch_tables import SwitchTables
from netsum_common.targets import read_capabilities
from sim.programming import TOKEN_STEP, InProcessWriter
from sim.switch import Switch, ir, load_program

DEFAULT_IP = "10.0.0.254"
DEFAULT_MAC = "02:00:0a:00:00:fe"


@cache
def _load(program: Path, modified_ns: int) -> ir.Program:
    """Load a program once per process, as loading can take longer than a run."""
    del modified_ns
    return load_program(program)


_compiled: dict[Path, Switch] = {}
"""One switch of each program; later switches share its machine code and layout."""


def _make_switch(path: Path) -> Switch:
    program = _load(path, path.stat().st_mtime_ns)
    like = _compiled.get(path)
    if like is None or like.program is not program:
        like = _compiled[path] = Switch(program)
    return Switch(program, like=like)


def tokens(seed: int) -> Callable[[], int]:
    """Return a function that makes the tokens of jobs; equal seeds give equal tokens."""
    numbers = count(seed + 1)
    return lambda: next(numbers) * TOKEN_STEP & 0xFFFFFFFF


class ProgrammedSwitch:
    """An aggregation switch that runs in this process.

    `program`: the compiled program (BMv2 JSON). `ip`, `mac`: the addresses at which workers reach the switch. `slots`: the number
    of the program's slots that jobs may use; None: all.
    """

    def __init__(
        self,
        program: Path,
        *,
        ip: str = DEFAULT_IP,
        mac: str = DEFAULT_MAC,
        slots: int | None = None,
    ) -> None:
        self.engine = _make_switch(program)
        self.capabilities = read_capabilities(program)
        if slots is not None:
            self.capabilities = replace(self.capabilities, slots=slots)
        self.tables = SwitchTables(InProcessWriter(self.engine))
        self.tables.set_switch_address(ip, mac)

    def clear(self, jobs: Iterable[Job]) -> None:
        """Clear the switch as a restart does: zero its registers and delete the entries of `jobs`, which must be all its jobs."""
        for job in jobs:
            self.tables.withdraw(job)
        for name in self.engine.program.registers:
            self.engine.register_view(name)[...] = 0
