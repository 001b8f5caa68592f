"""What every foreseeable fault of a simulation is."""

from netsum_common.errors import NetsumError


class SimulationError(NetsumError):
    """A simulation cannot do what was asked; the message is a sentence that says what to do."""


class SettingError(SimulationError):
    """What a simulation is given is wrong; the message names the place and says what was expected there."""
