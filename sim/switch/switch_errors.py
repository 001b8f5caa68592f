"""Errors of the engine about a program or a control-plane request."""

from collections.abc import Sequence

from netsum_common.errors import NetsumError


class SwitchError(NetsumError):
    """Base of every error the engine raises on purpose."""


class UnsupportedProgramError(SwitchError):
    """A program needs something the engine does not offer, or is not BMv2 JSON.

    `features`: everything found, one name each; the message lists them all.
    """

    def __init__(
        self, features: Sequence[str], program: str = "the program", engine: str = "the embedded switch"
    ) -> None:
        self.features = tuple(features)
        listed = "; ".join(self.features)
        super().__init__(f"{program} uses what {engine} does not support: {listed}")


class UnknownNameError(SwitchError, LookupError):
    """A table, action, register, counter, group, … that the program does not have, or an absent entry."""


class EntryError(SwitchError, ValueError):
    """A table entry, member, group or index that does not fit the program: wrong width, kind, action or size."""


class DuplicateError(EntryError):
    """An entry, member or group that is there already."""


class InUseError(EntryError):
    """A member or group that an entry or a group leads to."""


class FullError(EntryError):
    """A table or action profile that holds as many entries as the program declares."""
