"""The embedded switch: the engine of `sim.switch` in a process, with packet sockets on its interfaces."""

from collections.abc import Sequence
from typing import ClassVar

from netsum_common.programs import command_of
from netsum_common.targets.target import ProcessTarget, SwitchSetup


class Embedded(ProcessTarget):
    """The embedded engine."""

    name = "embedded"
    title = "the embedded switch"
    engine: ClassVar[str] = "embedded"  # The engine that runs the program.

    def command(self, setup: SwitchSetup, ready_fd: int | None) -> Sequence[str]:
        """Return the command line of the switch's process."""
        ports = [
            word for port, name in setup.interfaces.items() for word in ("--interface", f"{port}@{name}")
        ]
        return [
            *command_of("switch"),
            *ports,
            *("--p4runtime", setup.p4runtime, "--device-id", str(setup.device_id)),
            *("--cpu-port", str(setup.cpu_port), "--engine", self.engine),
            *("--status", str(setup.status)),
            *(() if setup.pcaps is None else ("--pcap", str(setup.pcaps))),
            *("--ready-fd", str(ready_fd)),
        ]
