"""Arrays to reduce, and repeats; the same for all ranks.

Failures raise `PlanError` with the reason.
"""

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from host_agent.errors import ArgumentError

ITEM_BYTES = {"float32": 4, "float64": 8, "float16": 2, "int32": 4, "int64": 8}
"""Data types, and the size of an element in bytes."""
OPS = ("sum", "min", "max", "bor")
_UNITS = {
    "": 1,
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "K": 1 << 10,
    "M": 1 << 20,
    "G": 1 << 30,  # as nccl-tests writes them
}
LARGEST_BYTES = 4 << 30


BLOCK = 256  # Elements that are zero together in arrays with zeros: those of a packet of 256 lanes.
CHOICES: dict[str, tuple[int | str, ...]] = {
    "overlap": ("full", "random", "none"),
    "sparse": ("auto", "always", "never"),
    "bits": ("full", 16, 8, 4, 2),
    "rounding": ("nearest", "stochastic"),
}


class PlanError(ArgumentError):
    """There is no such all-reduce; the message names the expected value."""


@dataclass(frozen=True)
class PlannedExchange:
    """One array to be reduced."""

    dtype: str  # A key of `ITEM_BYTES`.
    op: str  # One of `OPS`.
    elements: int
    # Share of the blocks of `BLOCK` elements in which a rank has other numbers than zeros.
    density: float = 1.0
    # Whether these are the same blocks at all ranks (``full``), chosen by each rank (``random``), or different ones at each
    # (``none``).
    overlap: str = "random"
    # sparse, bits, rounding: as `Communicator.allreduce` takes them.
    sparse: str = "auto"
    bits: int | str = "full"
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise PlanError(f"expected a data type of {', '.join(ITEM_BYTES)}, not {self.dtype!r}")
        if self.op not in OPS:
            raise PlanError(f"expected an operation of {', '.join(OPS)}, not {self.op!r}")
        if self.op == "bor" and not self.dtype.startswith("int"):
            raise PlanError(f"the operation bor takes int32 and int64, not {self.dtype}")
        if not 0 <= self.density <= 1:
            raise PlanError(f"expected a density from 0 to 1, not {self.density}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                expected = ", ".join(map(str, choices))
                raise PlanError(f"{name}: expected one of {expected}, not {getattr(self, name)}")
        if self.bits != "full" and (self.op != "sum" or self.dtype not in ("float32", "float16")):
            raise PlanError(
                f"{self.bits} bits: expected a sum of float32 or float16, not {self.op} of {self.dtype}"
            )
        if not 1 <= self.elements <= LARGEST_BYTES // self.bytes_of_an_element:
            raise PlanError(
                f"expected an array of 1 element to {LARGEST_BYTES >> 30} GiB, not {self.elements} elements"
            )

    @property
    def bytes_of_an_element(self) -> int:
        """Size of an element in memory."""
        return ITEM_BYTES[self.dtype]

    @property
    def array_bytes(self) -> int:
        """Size of the array in memory."""
        return self.elements * self.bytes_of_an_element


@dataclass(frozen=True)
class Plan:
    """A series of exchanges."""

    exchanges: tuple[PlannedExchange, ...]
    repeats: int = 3  # How often each is timed.
    warmups: int = 1  # How often each is done before, checked and not timed.
    seed: int = 0
    # Deadline of a collective, in seconds: it fails if nothing of it completes for that long.
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.exchanges:
            raise PlanError("expected at least one size and one data type")
        if self.repeats < 1 or self.warmups < 0:
            raise PlanError(
                f"expected at least 1 repeat and 0 warm-ups, got {self.repeats} and {self.warmups}"
            )

    @classmethod
    def of(
        cls,
        sizes: str,
        dtypes: str = "float32",
        op: str = "sum",
        *,
        repeats: int = 3,
        warmups: int = 1,
        seed: int = 0,
        timeout_s: float = 60.0,
        **how: Any,
    ) -> "Plan":
        """Make a plan of every data type with every size.

        `sizes`: sizes of the array in memory, such as "4KiB,1MiB"; a number without a unit is bytes. `dtypes`: data types,
        such as "float32,int32". `op`: one of `OPS`. `how`: other attributes of `PlannedExchange`.
        """
        exchanges = tuple(
            PlannedExchange(dtype, op, -(-size // ITEM_BYTES.get(dtype, 1)), **how)
            for dtype in _words(dtypes)
            for size in map(parse_size, _words(sizes))
        )
        return cls(exchanges, repeats, warmups, seed, timeout_s)

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Read what `to_json` wrote."""
        members: dict[str, Any] = json.loads(text)
        return cls(
            **{**members, "exchanges": tuple(PlannedExchange(**each) for each in members["exchanges"])}
        )


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def parse_size(text: str) -> int:
    """Read a size in bytes, such as "64MiB"."""
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text)
    if match is None or match[2] not in _UNITS or int(match[1]) == 0:
        raise PlanError(f"a size is a whole number of bytes, KiB, MiB or GiB, such as 64KiB, not {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def size_sweep(smallest: str, largest: str, factor: int) -> str:
    """Return sizes from the smallest to the largest, each `factor` times the one before, as `Plan.of` reads them."""
    size, last = parse_size(smallest), parse_size(largest)
    if size > last:
        raise PlanError(f"expected a largest size of at least the smallest, {smallest}, not {largest}")
    sizes = []
    while size <= last:
        sizes.append(str(size))
        size *= factor
    return ",".join(sizes)


def size_text(size_bytes: int) -> str:
    """Write a size as people read it."""
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes >= _UNITS[unit]:
            return f"{size_bytes / _UNITS[unit]:.4g} {unit}"
    return f"{size_bytes} B"
