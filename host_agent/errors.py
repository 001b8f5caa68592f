"""Errors in two families: mistakes of the caller, and failures of others.

`MisuseError` means that this program must be changed. `PeerError` means that another worker, the switch or the
network between did not do its part; after one the communicator is broken until the job is restarted with a new
admission.
"""

from netsum_common.errors import MisuseError as MisuseError
from netsum_common.errors import NetsumError as NetsumError


class ArgumentError(MisuseError, ValueError):
    """A value on a command line or in the environment is invalid."""


class AdmissionError(MisuseError, ValueError):
    """An admission with values that no switch grants."""


class UsedAdmissionError(MisuseError):
    """An admission that has served a communicator of this process before."""


class UnsupportedTypeError(MisuseError, TypeError):
    """A data type, or an operation on a data type, that netsum does not reduce."""


class ArrayError(MisuseError, ValueError):
    """An array whose shape, type or memory does not fit the call."""


class SecretError(MisuseError, ValueError):
    """A secret that is too short, cannot be read, or is open to everybody."""


class BrokenCommunicatorError(MisuseError):
    """A communicator was used after one of its collectives failed."""


class ClosedCommunicatorError(MisuseError):
    """A communicator was used after it was closed, or closed while a collective was running."""


class PeerError(NetsumError):
    """Another worker, the switch or the network failed."""


class MissingWorkersError(PeerError, TimeoutError):
    """The deadline passed and some workers had not contributed.

    Attributes
    ----------
    missing : tuple of int
        Their ranks, ascending. In a tree of switches, of another switch's workers all: which of them is missing shows
        in the errors of those.
    """

    def __init__(self, message: str, missing: tuple[int, ...]) -> None:
        super().__init__(message)
        self.missing = missing


class SwitchSilentError(PeerError, TimeoutError):
    """The deadline passed and the switch did not answer."""


class ResultsLostError(PeerError, TimeoutError):
    """The deadline passed; every worker contributed, but the results do not reach this worker."""


class MismatchError(PeerError):
    """The workers disagree about the collective."""


class SecretMismatchError(PeerError):
    """The workers' secrets differ, or their exchange of keys was changed on the way."""


class DuplicateWorkerError(PeerError):
    """Another process contributes under this worker's id."""


class VerificationError(NetsumError):
    """A worker received something else than the result of one contribution of every worker. The communicator stays usable."""


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
