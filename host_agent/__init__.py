"""The worker side of netsum: sums arrays over the workers of a job in the network."""

from host_agent.communicator import Communicator, compile_ahead
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
    SumOverflowError,
    SwitchSilentError,
    UnsupportedTypeError,
)
from host_agent.statistics import Statistics
from host_agent.wire import Admission

__all__ = [
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
    "Statistics",
    "SumOverflowError",
    "SwitchSilentError",
    "UnsupportedTypeError",
    "compile_ahead",
]
