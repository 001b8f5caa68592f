"""What can go wrong between the controller and a switch, one class a cause, one sentence a message."""


class ControllerError(Exception):
    """Base of every error the controller raises on purpose."""


class SwitchUnreachableError(ControllerError):
    """The switch's P4Runtime server does not answer, or stopped answering."""


class NotPrimaryError(ControllerError):
    """Another controller holds the switch, so this one may read it but not write it."""


class WrongProgramError(ControllerError):
    """The switch runs, or was about to be given, a program without the tables this controller fills."""


class SwitchRefusedError(ControllerError):
    """The switch answered a request with an error."""


class JobRefusedError(ControllerError):
    """A job cannot be admitted as asked for; the message says why."""


class UnknownJobError(ControllerError, LookupError):
    """The job has ended, or belongs to another controller."""


class ConfigError(ControllerError):
    """The description of the controller's network cannot be used."""


class StoreError(ControllerError):
    """The controller's state cannot be read or written."""


class ServiceError(ControllerError):
    """The controller service refused, or does not answer."""
