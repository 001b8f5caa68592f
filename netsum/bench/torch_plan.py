"""The plan of the ranks of `netsum bench torch`; without PyTorch, for ranks that do not use it."""

import dataclasses
import json
from dataclasses import dataclass

_REPEATED_BYTES, _MOST_REPEATS = 1 << 24, 20


def repeats_of(size_bytes: int) -> int:
    """Return how often arrays of a size are reduced for one measurement; each is a fresh one."""
    return max(1, min(_MOST_REPEATS, _REPEATED_BYTES // size_bytes))


COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather")


@dataclass(frozen=True)
class TorchPlan:
    """The plan of the measurements."""

    runs: int  # How often all of it, the two backends in turn.
    collectives: list[str]  # Members of `COLLECTIVES`.
    sizes: list[int]  # Whole sizes of the reduced or gathered tensors, in bytes of float32.
    dtypes: list[str]  # Their types, and those in which gradients are added.
    examples: dict[str, int]  # Steps of each example, by the name of its module.
    device: str  # Device of the tensors; the examples are trained on the CPU.

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "TorchPlan":
        """Return what `to_json` wrote."""
        return cls(**json.loads(text))
