"""The kernel: the engine's program as XDP at the interfaces."""

from netsum_common.targets.embedded import Embedded


class Xdp(Embedded):
    """The kernel with the program as XDP."""

    name = "xdp"
    title = "the XDP switch"
    engine = "xdp"
    usual_lanes = 512  # A page holds no longer packet, and drivers take no program for more.
    growth_bytes = 128  # Drivers leave some 200 bytes in front of a packet, and often none behind.

    def host_setup(self, interface: str) -> str:
        """Return the command that turns GRO on: without it, or an XDP program, a virtual interface takes no redirects."""
        return f"ethtool -K {interface} gro on"
