"""What can go wrong, in two families: what the caller did, and what the others did.

`MisuseError` means that this program must be changed. `PeerError` means that another worker, the switch or the
network between did not do its part; after one the communicator is broken until the job is restarted with a new
admission.
"""

from __future__ import annotations


class NetsumError(Exception):
    """Anything that netsum raises on purpose."""


class MisuseError(NetsumError):
    """The caller asked for something that cannot be done."""


class ArgumentError(MisuseError, ValueError):
    """A value on a command line or in the environment is not what is expected there."""


class AdmissionError(MisuseError, ValueError):
    """An admission that no switch can have granted."""


class UsedAdmissionError(MisuseError):
    """An admission that has served a communicator of this process before."""


class UnsupportedTypeError(MisuseError, TypeError):
    """A data type, or an operation on a data type, that netsum does not reduce."""


class ArrayError(MisuseError, ValueError):
    """An array whose shape, type or memory does not fit the call."""


class BrokenCommunicatorError(MisuseError):
    """A communicator was used after one of its collectives failed."""


class ClosedCommunicatorError(MisuseError):
    """A communicator was used after it was closed, or closed while a collective was running."""


class PeerError(NetsumError):
    """Another worker, the switch or the network did not do its part."""


class MissingWorkersError(PeerError, TimeoutError):
    """The deadline passed and some workers had not contributed.

    Attributes
    ----------
    missing : tuple of int
        Their worker ids, ascending.
    """

    def __init__(self, message: str, missing: tuple[int, ...]) -> None:
        super().__init__(message)
        self.missing = missing


class SwitchSilentError(PeerError, TimeoutError):
    """The deadline passed and the switch did not answer."""


class ResultsLostError(PeerError, TimeoutError):
    """The deadline passed; every worker contributed, yet the results do not arrive here."""


class MismatchError(PeerError):
    """The workers do not agree which collective this is."""


class DuplicateWorkerError(PeerError):
    """Another process contributes under this worker's id."""


class SumOverflowError(NetsumError, OverflowError):
    """An int32 sum does not fit int32. Every worker gets this error alike, and the communicator stays usable.

    Attributes
    ----------
    elements : int
        How many elements do not fit.
    """

    def __init__(self, message: str, elements: int) -> None:
        super().__init__(message)
        self.elements = elements
