"""A P4Runtime server for the embedded switch."""

from sim.switch.p4runtime.errors import BatchError, Code, P4RuntimeError
from sim.switch.p4runtime.server import AddressUnavailableError, P4RuntimeServer, serve

__all__ = ["AddressUnavailableError", "BatchError", "Code", "P4RuntimeError", "P4RuntimeServer", "serve"]
