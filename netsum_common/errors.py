"""The base classes of netsum's errors."""


class NetsumError(Exception):
    """Base class of all errors of netsum."""


class MisuseError(NetsumError):
    """The caller requested something impossible."""
