"""What is around a switch: the lock that orders control and data path, the clock, the ports."""

import threading
import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sim.switch import Digest, Packets, Switch
from sim.switch.ports.turns import Turns
from sim.switch.ports.udp import UdpPorts

DEFAULT_CPU_PORT = 510
STOP_TIMEOUT_S = 5.0
_WAIT_MS = 500


class Listener(Protocol):
    """Who is told what leaves a switch other than by ports. Called without the lock; must not block."""

    def packets_in(self, frames: list[bytes]) -> None:
        """Take frames that left by the CPU port."""

    def digests(self, samples: list[Digest]) -> None:
        """Take digests, oldest first."""


@dataclass(frozen=True)
class _Installed:
    switch: Switch
    listener: Listener | None
    learns: bool


class Chassis:
    """A place for one switch at a time.

    Parameters
    ----------
    ports
        The driver of its ports; None for a switch that is only used in process.
    cpu_port
        The port to and from the controller.

    Raises
    ------
    ValueError
        `cpu_port` is one of the driver's ports.

    Attributes
    ----------
    turn : Turns
        To be held by whoever reads or writes the installed switch.
    """

    def __init__(self, ports: UdpPorts | None = None, cpu_port: int = DEFAULT_CPU_PORT) -> None:
        if ports is not None and cpu_port in ports.addresses:
            raise ValueError(
                f"port {cpu_port} cannot lead to a UDP socket and to the controller; choose another one"
            )
        self.ports = ports
        self.cpu_port = cpu_port
        self.turn = Turns()
        self._installed: _Installed | None = None
        self._epoch_ns = time.monotonic_ns()
        self.unforwarded = {"no_program": 0, "no_such_port": 0}
        """Packets that came before there was a program, or left by a port the chassis does not have."""

    def now_ns(self) -> int:
        """Read the switch's clock: nanoseconds since the chassis was made."""
        return time.monotonic_ns() - self._epoch_ns

    def install(self, switch: Switch | None, listener: Listener | None = None) -> None:
        """Put a switch in, or take it out; call it with the turn held."""
        if switch is None:
            self._installed = None
        else:
            self._installed = _Installed(switch, listener, learns=bool(switch.program.digests))

    def inject(self, packets: Packets) -> Packets:
        """Run packets through the switch.

        What leaves by the CPU port, and digests, go to the listener; the rest goes out of the ports, if there
        are any.

        Parameters
        ----------
        packets
            Frames and the ports they come in by.

        Returns
        -------
        Packets
            All that left, the CPU port's included.
        """
        return self._pass(packets, copy=True)

    def forward(self, packets: Packets) -> None:
        """Run packets through the switch, as `inject`, and keep nothing of them."""
        self._pass(packets, copy=False)

    def _pass(self, packets: Packets, *, copy: bool) -> Packets:
        with self.turn:
            installed = self._installed
            if installed is None:
                self.unforwarded["no_program"] += len(packets)
                return Packets.of([])
            left = installed.switch.inject(packets, self.now_ns(), copy=copy)
            samples = installed.switch.drain_digests() if installed.learns else []
            to_cpu = self._send(left)
        if installed.listener is not None:
            if to_cpu:
                installed.listener.packets_in(to_cpu)
            if samples:
                installed.listener.digests(samples)
        return left

    def packet_out(self, frame: bytes) -> None:
        """Run a packet from the controller through the switch."""
        self.forward(Packets.of([(self.cpu_port, frame)]))

    def _send(self, left: Packets) -> list[bytes]:
        """Send what left; return the frames for the CPU port."""
        if len(left) == 0:
            return []
        if self.ports is not None:
            strangers = self.ports.transmit(left.ports, left.lengths, left.frames)
            if strangers == 0:
                return []
        for_cpu = np.flatnonzero(left.ports == self.cpu_port)
        if self.ports is not None:
            self.unforwarded["no_such_port"] += strangers - len(for_cpu)
        return [left.frames[row, : left.lengths[row]].tobytes() for row in for_cpu]


class Forwarding:
    """The thread that moves packets between a chassis' ports and its switch.

    Parameters
    ----------
    chassis
        The chassis, with the switch.
    ports
        Its driver.
    """

    def __init__(self, chassis: Chassis, ports: UdpPorts) -> None:
        self._chassis = chassis
        self._ports = ports
        self._stopping = False
        self.fault: BaseException | None = None
        """What ended the thread, if it was not `stop`."""
        self._thread = threading.Thread(target=self._run, name="forwarding", daemon=True)

    def start(self) -> None:
        """Begin to forward."""
        self._thread.start()

    def stop(self) -> None:
        """Stop forwarding; the ports may be closed afterwards."""
        self._stopping = True
        self._ports.wake()
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"forwarding did not stop within {STOP_TIMEOUT_S:.0f} s")

    def _run(self) -> None:
        ports = self._ports
        # Views of the first 0, 1, 2, … rows, made once: to make and check one costs as much as a small batch.
        batches = [
            Packets(ports.ports[:count], ports.lengths[:count], ports.frames[:count])
            for count in range(len(ports.lengths) + 1)
        ]
        try:
            while not self._stopping:
                if count := ports.receive(_WAIT_MS):
                    self._chassis.forward(batches[count])
        except BaseException as fault:
            self.fault = fault
