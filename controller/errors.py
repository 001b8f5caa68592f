"""The errors of the controller: one class for each cause, one sentence for each message."""

from netsum_common.errors import NetsumError


class ControllerError(NetsumError):
    """Base class of all errors of the controller."""


class SwitchUnreachableError(ControllerError):
    """The switch's P4Runtime server does not answer."""


class NotPrimaryError(ControllerError):
    """Another controller is primary; this one may read the switch but not write to it."""


class WrongProgramError(ControllerError):
    """A program lacks the tables that this controller fills, or cannot be read."""


class SwitchRefusedError(ControllerError):
    """The switch answered a request with an error."""


class JobRefusedError(ControllerError):
    """The request for a job cannot be granted; the message gives the reason."""


class UnknownJobError(ControllerError, LookupError):
    """The job has ended, or belongs to another controller."""


class ConfigError(ControllerError):
    """The description of the controller's network cannot be used."""


class JobStoreError(ControllerError):
    """The controller's state cannot be read or written."""


class ServiceError(ControllerError):
    """The controller service refused, or does not answer."""
