"""A P4Runtime server for the embedded switch, and the certificates that it may be given."""

from netsum_common.channel import PLAINTEXT, ChannelError, TlsFiles
from sim.switch.p4runtime.server import AddressUnavailableError, P4RuntimeServer
from sim.switch.p4runtime.status_errors import BatchError, Code, P4RuntimeError

__all__ = [
    "PLAINTEXT",
    "AddressUnavailableError",
    "BatchError",
    "ChannelError",
    "Code",
    "P4RuntimeError",
    "P4RuntimeServer",
    "TlsFiles",
]
