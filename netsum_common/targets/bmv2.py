"""BMv2, p4lang's reference switch: `simple_switch_grpc`."""

import shutil
from collections.abc import Sequence

from netsum_common.targets.target import DROP_PORT, ProcessTarget, SwitchSetup

PROGRAM = "simple_switch_grpc"
PACKAGE = "p4lang's package p4lang-bmv2, https://github.com/p4lang/behavioral-model#installing-packaged-versions-of-bmv2"


class Bmv2(ProcessTarget):
    """BMv2."""

    name = "bmv2"
    title = "BMv2"
    growth_bytes = 512  # BMv2 aborts beyond that.
    announces = False
    usual_lanes = 64  # Larger answers to packets without lanes would grow too much.

    def command(self, setup: SwitchSetup, ready_fd: int | None) -> Sequence[str]:
        """Return the command line of the switch's process."""
        del ready_fd
        return [
            *(PROGRAM, "--no-p4", "--device-id", str(setup.device_id)),
            *(word for port, name in setup.interfaces.items() for word in ("-i", f"{port}@{name}")),
            # By default, BMv2 announces ports on an address that all BMv2s of the machine share.
            *("--notifications-addr", f"ipc://{setup.notifications}"),
            *("--log-console", "--log-level", "error"),
            *(() if setup.pcaps is None else ("--pcap", str(setup.pcaps))),
            *("--", "--grpc-server-addr", setup.p4runtime),
            *("--cpu-port", str(setup.cpu_port), "--drop-port", str(DROP_PORT)),
        ]

    def lacking(self) -> str | None:
        """Return why this machine cannot run it, or None."""
        return None if shutil.which(PROGRAM) else f"BMv2 ({PROGRAM}) is not installed: get {PACKAGE}"
