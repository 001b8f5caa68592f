"""The embedded switch: any v1model program, from its BMv2 JSON to machine code."""

from sim.switch.entries import Exact, Lpm, Match, Optional, Range, TableEntry, Ternary
from sim.switch.loader import load_program
from sim.switch.packets import Packets
from sim.switch.switch import Digest, Switch, SwitchState
from sim.switch.switch_errors import (
    DuplicateError,
    EntryError,
    FullError,
    InUseError,
    SwitchError,
    UnknownNameError,
    UnsupportedProgramError,
)

__all__ = [
    "Digest",
    "DuplicateError",
    "EntryError",
    "Exact",
    "FullError",
    "InUseError",
    "Lpm",
    "Match",
    "Optional",
    "Packets",
    "Range",
    "Switch",
    "SwitchError",
    "SwitchState",
    "TableEntry",
    "Ternary",
    "UnknownNameError",
    "UnsupportedProgramError",
    "load_program",
]
