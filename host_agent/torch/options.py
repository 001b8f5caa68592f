"""How a process group reduces: options of the group, or of the environment."""

import os
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from host_agent.codecs.packed import BITS
from host_agent.collectives.allreduce import ROUNDINGS
from host_agent.collectives.sparse import SPARSE
from host_agent.errors import MisuseError

_CHOICES: dict[str, tuple[Any, ...]] = {
    "sparse": SPARSE,
    "bits": BITS,
    "rounding": ROUNDINGS,
    "exact": (False, True),
}


@dataclass(frozen=True)
class Options:
    """What `Communicator.allreduce` is given for every reduction of a group.

    Passed as ``init_process_group("netsum", pg_options=Options(...))``; the same at all ranks.
    """

    # Whether blocks that are zero at every rank are left out; "always" does not refuse MIN and MAX, which are dense.
    sparse: str = "auto"
    bits: int | str = "full"  # Of an element on the wire, for SUM and AVG of float32 and float16.
    rounding: str = "nearest"  # To few bits.
    seed: int = 0  # Of stochastic rounding.
    exact: bool = False  # Whether SUM and AVG of floats are correctly rounded; not with fewer bits.

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                expected = ", ".join(map(str, choices))
                raise MisuseError(f"{name}: expected one of {expected}, got {getattr(self, name)!r}")
        if self.exact and self.bits != "full":
            raise MisuseError("exact sums send all bits: leave out either exact or bits")

    @classmethod
    def from_environment(cls) -> "Options":
        """Read NETSUM_SPARSE, NETSUM_BITS, NETSUM_ROUNDING, NETSUM_SEED and NETSUM_EXACT (0 or 1), as far as they are set."""
        values: dict[str, Any] = {}
        for each in fields(cls):
            text = os.environ.get(f"NETSUM_{each.name.upper()}")
            if text is not None:
                values[each.name] = int(text) if text.isdecimal() else text
        if not isinstance(values.get("seed", 0), int):
            raise MisuseError(f"NETSUM_SEED: expected a whole number, got {values['seed']!r}")
        return cls(**values)

    def of(self, dtype: np.dtype[Any], op: str, rounds_to: str = "") -> dict[str, Any]:
        """Return the arguments of `Communicator.allreduce` for a type, an operation, and the type of an exact result."""
        if self.exact and dtype.kind == "f" and op in ("sum", "mean"):
            return {"exact": rounds_to or True}
        neutral = op in ("sum", "mean", "bor")
        arguments: dict[str, Any] = {"sparse": self.sparse if neutral else "never"}
        if self.bits != "full" and dtype.name in ("float32", "float16") and op in ("sum", "mean"):
            arguments |= {"bits": self.bits, "rounding": self.rounding, "seed": self.seed}
        return arguments
