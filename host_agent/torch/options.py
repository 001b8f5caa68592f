"""How a process group reduces: options of the group, or of the environment."""

import contextlib
import os
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy.typing as npt

from host_agent.codecs.packed import BITS, bits_of_type
from host_agent.collectives.allreduce import ROUNDINGS
from host_agent.collectives.sparse import SPARSE
from host_agent.environment import is_on
from host_agent.errors import MisuseError, UnsupportedTypeError
from host_agent.verification.trust import Trust
from host_agent.verification.verified import OnCorruption

Array = npt.NDArray[Any]

_AUTO_SIZE: Final = 1024
"""Elements below which "auto" packs nothing: it would save few packets or none."""
_CHOICES: dict[str, tuple[Any, ...]] = {
    "sparse": SPARSE,
    "bits": ("auto", *BITS),
    "rounding": ROUNDINGS,
    "exact": (False, True),
}


@dataclass(frozen=True)
class Options:
    """Arguments of `Communicator.allreduce` for every reduction of a group.

    Passed as ``init_process_group("netsum", pg_options=Options(...))``; the same at all ranks.
    """

    # Whether blocks that are zero at every rank are left out; "always" does not refuse MIN and MAX, which are dense.
    sparse: str = "auto"
    # Bits of an element on the wire, for SUM and AVG of floats but float64. "auto": the fewest that serve a type of 16 or 8 bits
    # (`host_agent.codecs.packed.bits_of_type`), and all of float32.
    bits: int | str = "auto"
    rounding: str = "nearest"  # To few bits.
    seed: int = 0  # Seed of stochastic rounding.
    # Whether and how results are checked; see `host_agent.verification.trust.Trust`. A secret is given by the path of its file.
    verify: bool = False
    secret: str | None = field(default=None, repr=False)
    on_corruption: OnCorruption = "raise"
    private: bool = False
    scale: float = 0.0
    exact: bool = False  # Whether SUM and AVG of floats are correctly rounded; not with fewer bits.

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                expected = ", ".join(map(str, choices))
                raise MisuseError(f"{name}: expected one of {expected}, got {getattr(self, name)!r}")
        if self.exact and self.bits not in ("auto", "full"):
            raise MisuseError("exact sums need all bits: leave out exact or bits")
        self.trust.verifier()  # A secret that cannot be used is refused here.

    @classmethod
    def from_environment(cls) -> "Options":
        """Read the variables that are named like the fields, from NETSUM_SPARSE to NETSUM_EXACT, as far as they are set."""
        values: dict[str, Any] = {}
        for each in fields(cls):
            variable = f"NETSUM_{each.name.upper()}"
            text = os.environ.get(variable)
            if each.type is bool:
                values[each.name] = is_on(variable)
            elif text:
                values[each.name] = text if each.name == "secret" else _number_or(text)
        if not isinstance(values.get("seed", 0), int):
            raise MisuseError(f"NETSUM_SEED: expected a whole number, got {values['seed']!r}")
        return cls(**values)

    @property
    def trust(self) -> Trust:
        """How results are checked."""
        return Trust(self.verify, self.secret, self.on_corruption, self.private, self.scale)

    def of(self, array: Array, op: str, rounds_to: str, ranks: int) -> dict[str, Any]:
        """Return the arguments of `Communicator.allreduce`.

        `array`: to reduce. `rounds_to`: the type that the result is rounded to if it is narrower than the array's; else
        empty. `ranks`: number of ranks in the group. Raises UnsupportedTypeError: an exact sum of float8.
        """
        dtype, adds = array.dtype, op in ("sum", "mean")
        if self.exact and dtype.kind == "f" and adds:
            if rounds_to.startswith("float8"):
                raise UnsupportedTypeError(
                    f"{rounds_to} has no exact sums: convert the tensor to a wider type"
                )
            return {"exact": rounds_to or True}
        arguments: dict[str, Any] = {"sparse": self.sparse if adds or op == "bor" else "never"}
        bits = self.bits
        if bits == "auto":
            bits = bits_of_type(rounds_to or dtype.name, ranks) if array.size >= _AUTO_SIZE else "full"
        if bits != "full" and dtype.name in ("float32", "float16") and adds:
            arguments |= {"bits": bits, "rounding": self.rounding, "seed": self.seed}
        return arguments


def _number_or(text: str) -> int | float | str:
    """Return a text as a number, if it is one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
