"""The wire format: constants, header, fingerprint and admission."""

from typing import TYPE_CHECKING, Any

from host_agent.wire.admission import Admission
from host_agent.wire.fingerprint import describe_dtype, fingerprint

if TYPE_CHECKING:
    from host_agent.wire.header import Header

__all__ = ["Admission", "Header", "describe_dtype", "fingerprint"]


def __getattr__(name: str) -> Any:
    if name != "Header":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from host_agent.wire.header import Header  # brings in Numba

    return Header
