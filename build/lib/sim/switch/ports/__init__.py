"""Port drivers: how frames get into a switch and out of it."""

from sim.switch.ports.chassis import Chassis, Forwarding
from sim.switch.ports.driver import PortDriver, PortUnavailableError
from sim.switch.ports.interfaces import InterfacePorts
from sim.switch.ports.udp import UdpPorts

__all__ = ["Chassis", "Forwarding", "InterfacePorts", "PortDriver", "PortUnavailableError", "UdpPorts"]
