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
        Statistics,
        SumOverflowError,
        SwitchSilentError,
        UnsupportedTypeError,
        UsedAdmissionError,
    )
    from host_agent.compression import Compression, compress
    from host_agent.joining import (
        AbsentWorkersError,
        BandwidthDelay,
        JoinError,
        NoSlotsError,
        Seat,
        Share,
        join,
    )
    from host_agent.strategies.registry import strategy

_JOINING = ("AbsentWorkersError", "BandwidthDelay", "JoinError", "NoSlotsError", "Seat", "Share", "join")
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
    "MismatchError",
    "MissingWorkersError",
    "MisuseError",
    "NetsumError",
    "NoSlotsError",
    "PeerError",
    "ResultsLostError",
    "Seat",
    "Share",
    "Statistics",
    "SumOverflowError",
    "SwitchSilentError",
    "UnsupportedTypeError",
    "UsedAdmissionError",
    "compress",
    "join",
    "strategy",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
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
        from netsum.extras import install_command

        raise ModuleNotFoundError(
            f"netsum.{name} needs PyTorch: {install_command('torch')}", name="torch"
        ) from None


def __dir__() -> list[str]:
    return [*__all__]
