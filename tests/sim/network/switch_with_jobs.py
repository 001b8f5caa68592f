"""A switch of a simulated network, and its jobs."""

from pathlib import Path

from sim.network.programming import DEFAULT_IP, DEFAULT_MAC, ProgrammedSwitch, tokens
from tests.controller.one_switch import OneSwitch


class SwitchWithJobs(OneSwitch, ProgrammedSwitch):
    """An aggregation switch in this process with a controller of its own, whose tokens the seed gives."""

    def __init__(
        self,
        program: Path,
        *,
        ip: str = DEFAULT_IP,
        mac: str = DEFAULT_MAC,
        token_seed: int = 0,
        slots: int | None = None,
    ) -> None:
        ProgrammedSwitch.__init__(self, program, ip=ip, mac=mac, slots=slots)
        OneSwitch.__init__(
            self, self.tables, self.capabilities, new_token=tokens(token_seed), unix_seconds=lambda: 1
        )
        self.ip, self.mac = ip, mac
