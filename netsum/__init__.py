"""In-network aggregation that anyone can run: P4 switches add the gradients of a training job.

The names here are those of the worker's side. They need NumPy and Numba alone, `strategy` PyTorch too. They are imported when
first used, so that the `netsum` command starts at once.
"""

# Nothing is imported here, not even `typing`: Ctrl-C in an import before the command's `main` would end in a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from host_agent import (
        Accumulator,
        Admission,
        AdmissionError,
        ArrayError,
        BrokenCommunicatorError,
        ClosedCommunicatorError,
        Communicator,
        DuplicateWorkerError,
        MismatchError,
        MissingWorkersError,
        MisuseError,
        NetsumError,
        PeerError,
        ResultsLostError,
        SecretError,
        SecretMismatchError,
        Statistics,
        SumOverflowError,
        SwitchSilentError,
        Trust,
        UnsupportedTypeError,
        UsedAdmissionError,
        VerificationError,
    )
    from host_agent.compression import Compression, compress
    from host_agent.joining import (
        AbsentWorkersError,
        BandwidthDelay,
        JoinError,
        Membership,
        NoSlotsError,
        Share,
        join,
    )
    from host_agent.strategies.registry import strategy

_JOINING = (
    "AbsentWorkersError",
    "BandwidthDelay",
    "JoinError",
    "NoSlotsError",
    "Membership",
    "Share",
    "join",
)
"""Names of `host_agent.joining`; the others are those of `host_agent`."""
_COMPRESSION = ("Compression", "compress")
"""Names of `host_agent.compression`, which need PyTorch."""
_STRATEGIES = ("strategy",)
"""Names of `host_agent.strategies`, which need PyTorch."""

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

    room = "host_agent"
    if name in _JOINING:
        room = "host_agent.joining"
    elif name in _COMPRESSION:
        room = "host_agent.compression"
    elif name in _STRATEGIES:
        room = "host_agent.strategies"
    try:
        return getattr(import_module(room), name)
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

    lacking = () if find_spec("torch") else (*_COMPRESSION, *_STRATEGIES)
    return [name for name in _NAMES if name not in lacking]
