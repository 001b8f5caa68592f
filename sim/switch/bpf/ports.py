"""Switch ports that are network interfaces with an XDP program, and the chassis whose switch is in the kernel.

Programs are attached by links, which go when their descriptors are closed: when the process ends, however it does.
"""

import contextlib
import errno
import logging
import os
import socket
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from netsum_common.closing import Closing
from netsum_common.errors import NetsumError
from sim.switch import ir
from sim.switch.bpf import syscall
from sim.switch.bpf.emit import CAPTURED, FLAGS, PASS_DROPPED
from sim.switch.bpf.mapped_memory import PORT_WORDS, PORTS
from sim.switch.bpf.pins import Pins
from sim.switch.bpf.programs import CAPTURE
from sim.switch.bpf.switch import XdpSwitch
from sim.switch.control_plane import ControlPlane
from sim.switch.ports.chassis import Chassis, Listener
from sim.switch.ports.driver import PortUnavailableError
from sim.switch.ports.frames import STATISTICS
from sim.switch.ports.interfaces import interface_is_up
from sim.switch.ports.pcap import Capture

NATIVE_MTU = os.sysconf("SC_PAGE_SIZE") - 590
"""Largest MTU of a veth whose peer takes XDP in the driver: a page less headroom, `skb_shared_info` and Ethernet's header."""

_CAPTURE_S = 0.02
_LOG = logging.getLogger(__name__)


class XdpPorts(Closing):
    """A set of switch ports on network interfaces; a context manager that detaches at the end.

    `pass_dropped`: whether packets that the program drops in ingress go on to this host's own network stack, unless it keeps a
    part of them. `captures`: whether packets are captured. `pins`: where the links are pinned, so that they stay; None:
    they go with this process. Raises PortUnavailableError if there is no such interface, or no right to BPF. Raises
    ValueError if a port or an interface is given twice.
    """

    def __init__(
        self,
        ports: Sequence[tuple[int, str]],
        *,
        pass_dropped: bool = False,
        captures: bool = False,
        pins: Pins | None = None,
    ) -> None:
        self.names = dict(ports)
        interfaces = list(self.names.values())
        if len(self.names) < len(ports) or len(set(interfaces)) < len(interfaces):
            raise ValueError(f"expected different ports and interfaces, not {list(ports)}")
        if not all(0 <= number < PORTS - 1 for number in self.names):
            raise ValueError(f"expected switch ports between 0 and {PORTS - 2}, not {sorted(self.names)}")
        self._flags = (PASS_DROPPED if pass_dropped else 0) | (CAPTURED if captures else 0)
        self.captures, self.pins = captures, pins
        self._links: dict[int, int] = {}
        self._indices: dict[int, int] = {}
        # For each attached port, ``native`` (in the driver) or ``generic`` (behind it, slower).
        self.modes: dict[int, str] = {}
        self.reasons: dict[int, str] = {}  # The reason of each port in generic mode.
        self._switch: XdpSwitch | None = None
        for number, name in self.names.items():
            if _index(name) == 0:
                raise PortUnavailableError(
                    f"switch port {number} could not open interface {name}: there is none; `ip link` lists those there are"
                )
        try:
            syscall.Map("probe", syscall.ARRAY, 4, 4, 1).close()
        except syscall.BpfError as error:
            raise PortUnavailableError(str(error)) from None

    def close(self) -> None:
        """Detach from all interfaces, and let go of the program."""
        for link in self._links.values():
            os.close(link)
        self._links.clear()
        if self._switch is not None:
            self._switch.close()
            self._switch = None

    def attach(self, switch: XdpSwitch) -> None:
        """Have a switch's program at all interfaces, in place of the one before, which is closed.

        Raises PortUnavailableError if an interface has a program of another process.
        """
        before, self._switch = self._switch, switch
        self.mend(anew=True)
        if before is not None and before is not switch:
            before.close()

    def _attach(self, number: int, index: int) -> None:
        assert self._switch is not None
        program = self._switch.kernel.stub("arrive", {"ingress_port": number, FLAGS: self._flags})
        if number in self._links:
            syscall.update_link(self._links[number], program)
            return
        pinned = self.pins.links() if self.pins is not None else {}
        if (number, index) in pinned:
            held_mode, path = pinned[number, index]
            self._links[number] = syscall.pinned_object(path)
            with contextlib.suppress(syscall.BpfError):  # The interface may have gone.
                syscall.update_link(self._links[number], program)
                self._note_mode(number, held_mode)
                return
            self._detach(number)
        refusal: syscall.BpfError | None = None
        for mode, name in ((syscall.NATIVE_MODE, "native"), (syscall.GENERIC_MODE, "generic")):
            try:
                self._links[number] = syscall.attach_xdp(program, index, mode)
            except syscall.BpfError as error:
                if error.errno in (errno.EBUSY, errno.EEXIST):
                    raise PortUnavailableError(
                        f"switch port {number} cannot use interface {self.names[number]}: another XDP program is "
                        "there, of another switch perhaps; `ip link` shows it"
                    ) from None
                if name == "generic":
                    raise PortUnavailableError(
                        f"switch port {number} cannot use interface {self.names[number]}: {error}"
                    ) from None
                refusal = error
                continue
            self._note_mode(number, name, refusal)
            if self.pins is not None:
                self.pins.pin_link(self._links[number], number, index, name)
            return

    def _note_mode(self, number: int, mode: str, refusal: syscall.BpfError | None = None) -> None:
        self.modes[number] = mode
        self.reasons.pop(number, None)
        if mode == "generic":
            sentence = f"the program runs behind the driver of {self.names[number]} (generic, slower)"
            if refusal is not None:
                sentence += f", which refuses it: {os.strerror(refusal.errno or 0)}"
            if refusal is not None and refusal.errno == errno.ERANGE:
                sentence += f"; give both ends of a veth an MTU of at most {NATIVE_MTU:,} bytes"
            self.reasons[number] = sentence
            _LOG.warning("switch port %d: %s", number, sentence)

    def _detach(self, number: int) -> None:
        os.close(self._links.pop(number))
        for (port, _), (_, path) in (self.pins.links() if self.pins is not None else {}).items():
            if port == number:
                path.unlink()
        self.modes.pop(number, None)
        self.reasons.pop(number, None)

    def mend(self, *, anew: bool = False) -> None:
        """Notice interfaces that have gone, and attach to those that are back, or to all."""
        if self._switch is None:
            return
        found = {number: _index(name) for number, name in self.names.items()}
        changed = {n for n, index in found.items() if self._indices.get(n, 0) != index}
        if not changed and not anew:
            return
        for number in changed:
            if number in self._links:
                _LOG.warning("switch port %d: interface %s is gone", number, self.names[number])
                self._detach(number)
        self._switch.set_interfaces({n: index for n, index in found.items() if index})
        for number, index in found.items():
            if index and (anew or number in changed):
                self._attach(number, index)
        self._indices = found
        for (port, index), (_, path) in (self.pins.links() if anew and self.pins is not None else {}).items():
            if found.get(port) != index:
                path.unlink()  # The link belongs to another set of ports.

    def is_up(self, number: int) -> bool:
        """Whether a switch port's interface is up, has a carrier, and is the one that the program is attached to."""
        name = self.names[number]
        return _index(name) == self._indices.get(number, 0) and interface_is_up(name)

    def statistics(self) -> dict[int, dict[str, int]]:
        """Count what passed each switch port, with the names of `PortDriver.statistics`; 0 for what XDP does not count."""
        table = {n: dict.fromkeys((*STATISTICS, "overrun"), 0) for n in self.names}
        if self._switch is not None:
            for number, counts in table.items():
                counts.update(zip(PORT_WORDS, self._switch.kernel.port_counts(number), strict=True))
        return table

    @property
    def some_index(self) -> int:
        """The kernel's number of one of the interfaces."""
        return next((i for i in self._indices.values() if i), 1)


def _index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0


class XdpChassis(Chassis):
    """A chassis whose switch is in the kernel."""

    def __init__(self, ports: XdpPorts, cpu_port: int) -> None:
        super().__init__(None, cpu_port)
        self.log = ports.pins
        self._taking: tuple[Path, bytes] | None = None
        if cpu_port in ports.names:
            raise ValueError(
                f"port {cpu_port} cannot lead to {ports.names[cpu_port]} and to the controller; choose another one"
            )
        self._interfaces = ports
        self._running: tuple[XdpSwitch, Listener | None] | None = None

    def engine(self, program: ir.Program, cache_dir: Path | None) -> ControlPlane:
        """Make a switch that runs a program."""
        ports = self._interfaces
        return XdpSwitch(
            program,
            cache_dir,
            cpu_port=self.cpu_port,
            captures=ports.captures,
            lasting=ports.pins is not None,
            pins=self._taking,
        )

    def install(self, switch: ControlPlane | None, listener: Listener | None = None) -> None:
        """Put a switch in; call it with the turn held."""
        super().install(switch, listener)
        assert isinstance(switch, XdpSwitch)
        self._running = switch, listener
        switch.go_live()
        self._interfaces.attach(switch)
        if self._interfaces.pins is not None:
            self._interfaces.pins.keep(switch.kernel)

    def take_over(self, resume: Callable[[bytes, Sequence[bytes]], None]) -> None:
        """Go on with the switch that an earlier process has pinned, if there is one and its code is this one's.

        `resume`: called with the configuration and the updates that the switch had, as messages of P4Runtime.
        """
        pins = self._interfaces.pins
        records = pins.records() if pins is not None else []
        if pins is None or not records:
            return
        identity, config, *updates = records
        self._taking = pins.folder, identity
        try:
            resume(zlib.decompress(config), updates)
        except (NetsumError, OSError) as error:
            _LOG.warning("what is pinned at %s cannot go on, so the switch is empty: %s", pins.folder, error)
            pins.clear()
        finally:
            self._taking = None

    def packet_out(self, frame: bytes) -> None:
        """Run a packet from the controller through the switch, out of its interfaces."""
        with self.turn:
            if self._running is not None:
                self._running[0].send(frame, self._interfaces.some_index)

    def serve(self, timeout_s: float) -> None:
        """Wait for packets to the controller, hand them on, and look after the interfaces."""
        running = self._running
        if running is None:
            time.sleep(timeout_s)
            return
        frames = running[0].for_controller(timeout_s if self.capture is None else _CAPTURE_S)
        if self.capture is not None:
            _write_down(self.capture, running[0].captured.packets(0))
        if frames and running[1] is not None:
            running[1].packets_in(frames)
        with self.turn:
            self._interfaces.mend()


def _write_down(capture: Capture, records: list[bytes]) -> None:
    """Write captured packets, of which the ring holds the first bytes alone, to their files."""
    since = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    for record in records:
        ns, port, way, _ = CAPTURE.unpack_from(record)
        frame = np.frombuffer(record, np.uint8, offset=CAPTURE.size)[np.newaxis]
        what = np.array([port], np.uint16), np.array([frame.size], np.int32), frame
        if way:
            capture.went_out(*what)
        else:
            capture.came_in(*what, np.array([since + ns], np.int64))
    capture.flush()
