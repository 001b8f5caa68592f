"""BMv2 as a target: `simple_switch_grpc` in a namespace, its ports cabled to our packet sockets."""

import struct
import time
from collections.abc import Iterable, Sequence

from netsum_common.targets import TARGETS, read_capabilities
from tests.cabled_bmv2 import DEVICE_ID, CabledBmv2, missing_for_cabled_bmv2

from .programming import Programmed, Programming
from .target import CPU_PORT, PORTS, Entry, Packet, program_files

DEADLINE_S = 400.0
BURST = 32
"""Packets in a row before the switch is waited for; its queue per port has 64 places."""

SENTINEL_PORT = PORTS
SENTINEL_TYPE = 0x88B5  # IEEE 802, local experimental
SENTINEL_MAC = 0x0253454E0000  # goes to the sentinel port
SENTINEL_ALL_MAC = 0x0253454E0001  # goes to all other ports
SENTINEL_GROUP = 0x105E

why_not = missing_for_cabled_bmv2


class Bmv2Target(Programmed):
    """BMv2 with the compiled program in it.

    Sentinels show that the switch is done with a packet: a frame to the sentinel port passes ingress, one
    thread, behind it; a frame from there to all other ports passes their egress queues behind all else.
    """

    kind = TARGETS["bmv2"]
    growth_bytes = kind.growth_bytes

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.can = read_capabilities(program_files(lanes)[1])
        self._sequence = 0
        self._switch = CabledBmv2(PORTS + 1, CPU_PORT)
        self.address = self._switch.address
        try:
            self._program()
        except BaseException:
            self.close()
            raise

    def _program(self) -> None:
        self.programming = Programming(self.address, DEVICE_ID, *program_files(self.lanes))
        self.set_group(SENTINEL_GROUP, [(port, 0) for port in range(PORTS + 1)])
        self.insert(
            [
                Entry("l2_forward", {"dst": SENTINEL_MAC}, "forward", {"port": SENTINEL_PORT}),
                Entry("l2_forward", {"dst": SENTINEL_ALL_MAC}, "flood", {"mcast_group": SENTINEL_GROUP}),
            ]
        )
        self.send([])

    def close(self) -> None:
        if hasattr(self, "programming"):
            self.programming.close()
        self._switch.close()

    def send(self, packets: Sequence[Packet]) -> list[Packet]:
        out: list[Packet] = []
        start, waiting = 0, 0
        while start < len(packets):
            port = packets[start][0]
            end = start
            while end < len(packets) and packets[end][0] == port and waiting < BURST:
                self._switch.send(port, packets[end][1])
                end, waiting = end + 1, waiting + 1
            self._sentinel(port, SENTINEL_MAC, [SENTINEL_PORT], out)
            if waiting == BURST:
                self._sentinel(SENTINEL_PORT, SENTINEL_ALL_MAC, range(PORTS), out)
                waiting = 0
            start = end
        if waiting or not packets:
            self._sentinel(SENTINEL_PORT, SENTINEL_ALL_MAC, range(PORTS), out)
        return out

    def send_from_controller(self, egress_port: int, frame: bytes) -> list[Packet]:
        self.programming.packet_out(egress_port, frame)
        deadline = time.monotonic() + DEADLINE_S
        out: list[Packet] = []
        while not out and time.monotonic() < deadline:
            out = self._switch.receive(0.1)
            self._switch.require_running()
        return out + self.send([])

    def _sentinel(self, port: int, mac: int, where: Iterable[int], out: list[Packet]) -> None:
        """Send a sentinel and collect all packets that leave until it has left at every port."""
        self._sequence += 1
        mark = struct.pack("!HI", SENTINEL_TYPE, self._sequence)
        self._switch.send(port, mac.to_bytes(6, "big") + bytes(6) + mark + bytes(42))
        waiting = set(where)
        deadline = time.monotonic() + DEADLINE_S
        while waiting:
            found = self._switch.receive(0.2)
            for at, frame in found:
                if frame[12:18] == mark:
                    waiting.discard(at)
                elif frame[12:14] != mark[:2]:
                    out.append((at, frame))
            if not found:
                self._switch.require_running()
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"a sentinel from port {port} did not come out of ports {sorted(waiting)}"
                )
