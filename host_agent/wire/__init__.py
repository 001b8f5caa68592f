"""The wire format: constants, header, fingerprint and admission."""

from host_agent.wire.admission import Admission
from host_agent.wire.fingerprint import fingerprint
from host_agent.wire.header import Header

__all__ = ["Admission", "Header", "fingerprint"]
