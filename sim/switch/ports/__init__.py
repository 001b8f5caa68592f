"""Port drivers: how frames get into a switch and out of it."""

from sim.switch.ports.chassis import Chassis, Forwarding
from sim.switch.ports.udp import PortUnavailableError, UdpPorts

__all__ = ["Chassis", "Forwarding", "PortUnavailableError", "UdpPorts"]
