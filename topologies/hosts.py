"""The common interface of testbeds: hosts on ports of one switch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from topologies.children import Child
from topologies.topology import SwitchSpec


@dataclass(frozen=True)
class Host:
    """A host of a testbed, which runs one worker."""

    name: str
    port: int  # The switch port that the host is on.
    ip: str
    mac: str
    udp_port: int  # A UDP port that is free on the host.
    switch: tuple[str, int]  # (address, UDP port) at which the host reaches the switch.
    prefix: tuple[str, ...] = ()  # Beginning of a command line that runs on the host.

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return a command line that runs on this host."""
        return [*self.prefix, *arguments]


class SwitchTestbed(Protocol):
    """One switch and hosts on its ports, up for as long as the ``with`` block."""

    folder: Path
    hosts: tuple[Host, ...]

    @property
    def spec(self) -> SwitchSpec:
        """The switch's addresses and device id."""

    @property
    def switch(self) -> Child:
        """The switch's process."""

    @property
    def p4runtime_address(self) -> str:
        """The gRPC address of the switch's P4Runtime server."""

    def restart_switch(self) -> None:
        """End the switch if it runs and start it anew, empty."""
