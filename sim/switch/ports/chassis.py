"""The environment of a switch: the lock that orders control and data path, the clock, the ports."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from netsum_common.switch_options import CPU_PORT
from sim.switch import Digest, Packets, Switch, ir
from sim.switch.control_plane import ControlPlane
from sim.switch.lending import Lending
from sim.switch.ports.driver import PortDriver
from sim.switch.ports.lending import LendError, Loan
from sim.switch.ports.loop import ATTEND, NO_SUCH_PORT, RECEIVED_FRAMES, STATUS, UNFINISHED, engine_of
from sim.switch.ports.pcap import Capture
from sim.switch.ports.turns import Turns

STOP_TIMEOUT_S = 60.0
_WAIT_S = 0.5


class ChangeLog(Protocol):
    """Keeps what controllers write, for the next process to go on with; both take messages of P4Runtime."""

    def renew(self, config: Any, updates: Sequence[Any]) -> None:
        """Begin anew, with a configuration and the updates that make the present state."""

    def append(self, updates: Sequence[Any]) -> bool:
        """Add updates; return whether there was room."""


class Listener(Protocol):
    """Receives what leaves a switch other than through ports. Called without the lock; must not block."""

    def packets_in(self, frames: list[bytes]) -> None:
        """Take frames that left by the CPU port."""

    def digests(self, samples: list[Digest]) -> None:
        """Take digests, oldest first."""


@dataclass(frozen=True)
class _Installed:
    switch: ControlPlane
    listener: Listener | None
    learns: bool


class Chassis:
    """A place for one switch at a time.

    `ports`: the driver of its ports; None for a switch that is only used in process. Raises ValueError if `cpu_port` is one
    of the driver's ports.
    """

    def __init__(self, ports: PortDriver | None = None, cpu_port: int = CPU_PORT) -> None:
        if ports is not None and cpu_port in ports.names:
            raise ValueError(
                f"port {cpu_port} cannot lead to {ports.names[cpu_port]} and to the controller; choose another one"
            )
        self.ports = ports
        self.cpu_port = cpu_port
        self.turn = Turns()  # Held by the thread that reads or writes the installed switch.
        if ports is not None:
            self.turn.interrupt = ports.wake
            if ports.lender is not None:
                ports.lender.owner = self
        self._look_at = 0.0
        self._installed: _Installed | None = None
        self._epoch_ns = time.monotonic_ns()
        self._outcome = np.zeros(3, np.int64)
        self.capture: Capture | None = None
        """Sees every packet that comes in or leaves by the driver's ports."""
        self.log: ChangeLog | None = None
        """Is notified of what controllers write, where the switch outlives its process."""
        self.unforwarded = {"no_program": 0, "no_such_port": 0}
        """Packets that came before there was a program, or left by a port the chassis does not have."""

    def now_ns(self) -> int:
        """Read the switch's clock: nanoseconds since the chassis was made."""
        return time.monotonic_ns() - self._epoch_ns

    def engine(self, program: ir.Program, cache_dir: Path | None) -> ControlPlane:
        """Make a switch that runs a program."""
        return Switch(program, cache_dir)

    def install(self, switch: ControlPlane | None, listener: Listener | None = None) -> None:
        """Put a switch in, or take it out; call it with the turn held."""
        if self.ports is not None and self.ports.lender is not None:
            self.ports.lender.revoke()
        if switch is None:
            self._installed = None
        else:
            self._installed = _Installed(switch, listener, learns=bool(switch.program.digests))

    def lend(self, make: Callable[[Lending], Loan], frame_bytes: int) -> Loan:
        """Make a loan of the installed program; see `lending.Owner`."""
        with self.turn:
            installed = self._installed
            if installed is None or not isinstance(installed.switch, Switch):
                raise LendError("it has no program to lend")
            if self.capture is not None:
                raise LendError("it captures packets")
            return make(installed.switch.lend(frame_bytes))

    def end_loan(self, loan: Loan) -> None:
        """Take the counts of a loan of the program, if that is still installed."""
        with self.turn:
            installed = self._installed
            if installed is not None and isinstance(installed.switch, Switch):
                installed.switch.end_lending(loan.counts)

    def program_statistics(self) -> dict[str, int]:
        """Count the packets that the installed program's target dropped, by reason; empty without a program."""
        installed = self._installed
        return {} if installed is None else installed.switch.statistics

    def inject(self, packets: Packets) -> Packets:
        """Run packets through the switch.

        What leaves by the CPU port, and digests, go to the listener; the rest goes out of the ports, if there
        are any.
        """
        with self.turn:
            installed = self._installed
            if installed is None:
                self.unforwarded["no_program"] += len(packets)
                return Packets.of([])
            left = installed.switch.inject(packets, self.now_ns())
            no_such_port = self._send(left)
            notice = self._notice(installed, left, no_such_port)
        notice.send(installed.listener)
        return left

    def forward(self, ports: PortDriver, timeout_ms: int) -> None:
        """Move packets between the ports and the switch until none have come for `timeout_ms`, or a thread wants a turn.

        May return at any time; to be called again and again, by one thread.
        """
        with self.turn:
            installed = self._installed
            if installed is None:
                self.unforwarded["no_program"] += ports.receive(timeout_ms)
                return
            notice = self._forward(installed, ports, timeout_ms)
        notice.send(installed.listener)

    def _forward(self, installed: _Installed, ports: PortDriver, timeout_ms: int) -> "_Notice":
        outcome = self._outcome
        assert isinstance(installed.switch, Switch)
        with installed.switch.in_flight(ports.record.frames) as flight:
            engine, once = engine_of(flight), self.capture is not None
            reason = ports.forward(engine, self.turn.asked, self._epoch_ns, timeout_ms, once, outcome)
            if reason == UNFINISHED:
                left = flight.resume(int(outcome[STATUS]))
                no_such_port = self._send(left)
            elif reason == ATTEND:
                left, no_such_port = flight.result(), int(outcome[NO_SUCH_PORT])
                if self.capture is not None:
                    self.capture.went_out(left.ports, left.lengths, left.frames)
            else:
                return _Notice([], [])
            if self.capture is not None:
                count, rows = int(outcome[RECEIVED_FRAMES]), ports.record
                self.capture.came_in(rows.ports[:count], rows.lengths[:count], rows.frames, rows.times)
        return self._notice(installed, left, no_such_port)

    def serve(self, timeout_s: float) -> None:
        """Forward for about this long, and maintain the ports: bring those back that failed, write captured packets to files."""
        assert self.ports is not None
        self.forward(self.ports, round(1000 * timeout_s))
        if time.monotonic() >= self._look_at or not timeout_s:
            self._look_at = time.monotonic() + timeout_s
            with self.turn:
                self.ports.poll()
                if self.capture is not None:
                    self.capture.flush()

    def packet_out(self, frame: bytes) -> None:
        """Run a packet from the controller through the switch."""
        self.inject(Packets.of([(self.cpu_port, frame)]))

    def _send(self, left: Packets) -> int:
        """Send what left; return how many packets left by no port of the driver."""
        if self.ports is None:
            return len(left)
        if self.capture is not None:
            self.capture.went_out(left.ports, left.lengths, left.frames)
        return self.ports.transmit(left.ports, left.lengths, left.frames)

    def _notice(self, installed: _Installed, left: Packets, no_such_port: int) -> "_Notice":
        """Collect the listener's part of a batch, while the batch is in memory."""
        frames = []
        if no_such_port > 0:
            for_cpu = np.flatnonzero(left.ports == self.cpu_port)
            if self.ports is not None:
                self.unforwarded["no_such_port"] += no_such_port - len(for_cpu)
            frames = [left.frames[row, : left.lengths[row]].tobytes() for row in for_cpu]
        return _Notice(frames, installed.switch.drain_digests() if installed.learns else [])


@dataclass(frozen=True)
class _Notice:
    """Frames for the CPU port and digests, for a listener."""

    frames: list[bytes]
    samples: list[Digest]

    def send(self, listener: Listener | None) -> None:
        if listener is None:
            return
        if self.frames:
            listener.packets_in(self.frames)
        if self.samples:
            listener.digests(self.samples)


class Forwarding:
    """The thread that moves packets between a chassis' ports and its switch, or looks after a switch in the kernel."""

    def __init__(self, chassis: Chassis) -> None:
        self._chassis = chassis
        self._stopping = False
        self.fault: BaseException | None = None  # Error that ended the thread, if it was not `stop`.
        self._thread = threading.Thread(target=self._run, name="forwarding", daemon=True)

    def start(self) -> None:
        """Begin to forward."""
        self._thread.start()

    def stop(self) -> None:
        """Stop forwarding; the ports may be closed afterwards."""
        self._stopping = True
        self._chassis.turn.interrupt()
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"forwarding did not stop within {STOP_TIMEOUT_S:.0f} s")

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._chassis.serve(_WAIT_S)
            self._chassis.serve(0)  # The last captured packets.
        except BaseException as fault:
            self.fault = fault
