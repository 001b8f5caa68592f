"""Base class of all foreseen faults of a simulation."""

from netsum_common.errors import NetsumError


class SimulationError(NetsumError):
    """A simulation cannot carry out a request; the message is a sentence that says what to do."""


class SettingError(SimulationError):
    """An input of a simulation is wrong; the message names the place and the expected value."""
