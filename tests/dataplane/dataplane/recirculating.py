"""The embedded engine with a program through which packets pass more than once."""

from collections.abc import Sequence
from pathlib import Path

from sim.switch import Packets

from .embedded import DEADLINE_S, EmbeddedTarget
from .frames import without_unread_lanes
from .target import PORTS, Packet


class RecirculatingTarget(EmbeddedTarget):
    """A switch whose recirculation port returns packets.

    Parameters
    ----------
    lanes
        All that a packet has.
    files
        The program and its P4Info.
    port
        The recirculation port.
    """

    def __init__(self, lanes: int, files: tuple[Path, Path], port: int) -> None:
        super().__init__(lanes, files)
        self.port = port

    def step(self, packets: Sequence[Packet]) -> tuple[list[Packet], list[Packet]]:
        """Send packets through one pass; return the packets that left the switch, and those that pass again."""
        left = list(self._chassis.inject(Packets.of(packets)))
        self._chassis.left.get(timeout=DEADLINE_S)
        again = [packet for packet in left if packet[0] == self.port]
        return [(port, without_unread_lanes(frame)) for port, frame in left if port < PORTS], again

    def send(self, packets: Sequence[Packet]) -> list[Packet]:
        left = []
        for packet in packets:
            waiting = [packet]
            while waiting:
                out, waiting = self.step(waiting)
                left += out
        return left
