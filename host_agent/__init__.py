"""The worker side of netsum: sums arrays over the workers of a job in the network.

What needs Numba, which takes half a second to import, is imported when it is first used: a controller or a command
that only reads admissions does without.
"""

from typing import TYPE_CHECKING, Any

from host_agent.errors import (
    AdmissionError,
    ArrayError,
    BrokenCommunicatorError,
    ClosedCommunicatorError,
    DuplicateWorkerError,
    MismatchError,
    MissingWorkersError,
    MisuseError,
    NetsumError,
    PeerError,
    ResultsLostError,
    SecretError,
    SecretMismatchError,
    SumOverflowError,
    SwitchSilentError,
    UnsupportedTypeError,
    UsedAdmissionError,
    VerificationError,
)
from host_agent.statistics import Statistics
from host_agent.wire import Admission

if TYPE_CHECKING:
    from host_agent.codecs.accumulator import Accumulator
    from host_agent.communicator import Communicator, compile_ahead
    from host_agent.verification.trust import Trust

__all__ = [
    "Accumulator",
    "Admission",
    "AdmissionError",
    "ArrayError",
    "BrokenCommunicatorError",
    "ClosedCommunicatorError",
    "Communicator",
    "DuplicateWorkerError",
    "MismatchError",
    "MissingWorkersError",
    "MisuseError",
    "NetsumError",
    "PeerError",
    "ResultsLostError",
    "SecretError",
    "SecretMismatchError",
    "Statistics",
    "SumOverflowError",
    "SwitchSilentError",
    "Trust",
    "UnsupportedTypeError",
    "UsedAdmissionError",
    "VerificationError",
    "compile_ahead",
]


def __getattr__(name: str) -> Any:
    if name in ("Communicator", "compile_ahead"):
        from host_agent import communicator

        return getattr(communicator, name)
    if name == "Accumulator":
        from host_agent.codecs.accumulator import Accumulator

        return Accumulator
    if name == "Trust":
        from host_agent.verification.trust import Trust

        return Trust
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
