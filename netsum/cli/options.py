"""Options that several commands take, each written once."""

from enum import StrEnum


class SwitchKind(StrEnum):
    """Which switch runs the P4 program."""

    embedded = "embedded"
    bmv2 = "bmv2"


class Lanes(StrEnum):
    """Values a packet carries; a compiled program each."""

    narrow = "64"
    wide = "256"
