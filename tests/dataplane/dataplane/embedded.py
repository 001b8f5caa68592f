"""The embedded engine as a target: in this process, programmed by P4Runtime."""

import contextlib
import queue
from collections.abc import Sequence
from pathlib import Path

from netsum_common.targets import read_capabilities
from sim.switch import Packets
from sim.switch.control_plane import ControlPlane
from sim.switch.p4runtime import P4RuntimeServer
from sim.switch.ports.chassis import Chassis, Listener

from .programming import Programmed, Programming
from .target import CPU_PORT, PORTS, Packet, program_files

DEADLINE_S = 400.0
DEVICE_ID = 1


class OpenChassis(Chassis):
    """A chassis that shows its switch and what leaves it."""

    def __init__(self) -> None:
        super().__init__(cpu_port=CPU_PORT)
        self.switch: ControlPlane | None = None
        self.left: queue.SimpleQueue[list[Packet]] = queue.SimpleQueue()

    def install(self, switch: ControlPlane | None, listener: Listener | None = None) -> None:
        self.switch = switch
        super().install(switch, listener)

    def inject(self, packets: Packets) -> Packets:
        left = super().inject(packets)
        self.left.put([(port, frame) for port, frame in left if port < PORTS])  # the others have no cable
        return left

    def packet_out(self, frame: bytes) -> None:
        self.inject(Packets.of([(self.cpu_port, frame)]))


class EmbeddedTarget(Programmed):
    """The embedded engine with a compiled program in it: by default that of v1model with this number of lanes."""

    def __init__(
        self,
        lanes: int,
        files: tuple[Path, Path] | None = None,
        *,
        chassis: type[OpenChassis] = OpenChassis,
    ) -> None:
        self.lanes = lanes
        files = files or program_files(lanes)
        self.can = read_capabilities(files[1])
        self.growth_bytes = self.kind.growth_bytes
        self._chassis = chassis()
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(P4RuntimeServer(self._chassis, "127.0.0.1:0", device_id=DEVICE_ID))
            self.programming = Programming(server.address, DEVICE_ID, *files)
            stack.callback(self.programming.close)
            self._stack = stack.pop_all()

    @property
    def switch(self) -> ControlPlane:
        """The engine itself."""
        assert self._chassis.switch is not None
        return self._chassis.switch

    def close(self) -> None:
        self._stack.close()

    def send(self, packets: Sequence[Packet]) -> list[Packet]:
        self._chassis.inject(Packets.of(packets))
        return self._chassis.left.get(timeout=DEADLINE_S)

    def send_from_controller(self, egress_port: int, frame: bytes) -> list[Packet]:
        self.programming.packet_out(egress_port, frame)
        return self._chassis.left.get(timeout=DEADLINE_S)
