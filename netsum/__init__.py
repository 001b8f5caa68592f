"""In-network aggregation that anyone can run: P4 switches add the gradients of a training job.

The names here are those of the worker's side. They need NumPy and Numba alone, `strategy` PyTorch too. They are imported when
first used, so that the `netsum` command starts at once.
"""

# Nothing is imported here, not even `typing`: Ctrl-C in an import before the command's `main` would end in a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from host_agent.codecs.accumulator import Accumulator
    from host_agent.communicator import Communicator
    from host_agent.compression import Compression, compress
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
    from host_agent.joining import (
        AbsentWorkersError,
        BandwidthDelay,
        JoinError,
        Membership,
        NoSlotsError,
        Share,
        join,
    )
    from host_agent.statistics import Statistics
    from host_agent.strategies.registry import strategy
    from host_agent.verification.trust import Trust
    from host_agent.wire import Admission

_HOMES = {
    "Accumulator": "codecs.accumulator",
    "Admission": "wire",
    "Communicator": "communicator",
    "Statistics": "statistics",
    "Trust": "verification.trust",
    "AbsentWorkersError": "joining",
    "BandwidthDelay": "joining",
    "JoinError": "joining",
    "Membership": "joining",
    "NoSlotsError": "joining",
    "Share": "joining",
    "join": "joining",
}
"""Modules of `host_agent` by the names that they have; the others are names of `host_agent.errors`."""
_OF_TORCH = {"Compression": "compression", "compress": "compression", "strategy": "strategies"}
"""The same for names that need PyTorch."""

__all__ = [
    "AbsentWorkersError",
    "Accumulator",
    "Admission",
    "AdmissionError",
    "ArrayError",
    "BandwidthDelay",
    "BrokenCommunicatorError",
    "ClosedCommunicatorError",
    "Communicator",
    "Compression",
    "DuplicateWorkerError",
    "JoinError",
    "Membership",
    "MismatchError",
    "MissingWorkersError",
    "MisuseError",
    "NetsumError",
    "NoSlotsError",
    "PeerError",
    "ResultsLostError",
    "SecretError",
    "SecretMismatchError",
    "Share",
    "Statistics",
    "SumOverflowError",
    "SwitchSilentError",
    "Trust",
    "UnsupportedTypeError",
    "UsedAdmissionError",
    "VerificationError",
    "compress",
    "join",
    "strategy",
]


_NAMES = __all__
del __all__  # `__getattr__` leaves out what this installation lacks, for ``from netsum import *``.


def __getattr__(name: str) -> object:
    if name == "__all__":
        return __dir__()
    if name not in _NAMES:
        raise AttributeError(f"module 'netsum' has no attribute {name!r}")
    from importlib import import_module

    home = (_HOMES | _OF_TORCH).get(name, "errors")
    try:
        return getattr(import_module(f"host_agent.{home}"), name)
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        import sys

        from netsum.extras import install_command

        reason = f"netsum.{name} needs PyTorch: {install_command('torch')}"
        # Python drops the words of an AttributeError of ``from netsum import ...``. No class can be both: CPython lays them out
        # differently.
        if sys._getframe(1).f_globals["__name__"] in ("importlib._bootstrap", "_frozen_importlib"):
            raise ModuleNotFoundError(reason, name="torch") from None
        raise AttributeError(reason) from None


def __dir__() -> list[str]:
    from importlib.util import find_spec

    lacking = () if find_spec("torch") else _OF_TORCH
    return [name for name in _NAMES if name not in lacking]
