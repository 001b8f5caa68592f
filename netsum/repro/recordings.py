"""The first difference between what two runs recorded."""

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from netsum.command_errors import CommandError

SHOW_STACKS: Final = signal.SIGRTMAX
"""Grace of the processes of a run before they are killed because it takes too long, in seconds."""
_KEY = ("optimizer", "step", "kind", "tensor", "dtype", "shape")


@dataclass(frozen=True)
class Difference:
    """First difference between two runs."""

    # rank, step: at which rank, and at which step of the optimizer, from 0.
    rank: int
    step: int
    # kind, tensor: "gradient" or "weight", and the parameter's name; both empty if one run recorded other tensors, or
    # fewer.
    kind: str = ""
    tensor: str = ""
    element: tuple[int, ...] = ()  # Index of the first element that differs.
    values: tuple[str, str] = ("", "")  # The element's bits in both runs, in hexadecimal.

    def __str__(self) -> str:
        if not self.kind:
            return f"step {self.step}, rank {self.rank}: the runs recorded other tensors"
        return (
            f"step {self.step}, {self.kind} of {self.tensor}, element {list(self.element)}, rank {self.rank}: "
            f"{self.values[0]} and {self.values[1]}"
        )


def first_difference(one: Path, other: Path) -> Difference | None:
    """Compare two folders of records; ranks that only one of the runs has are left out.

    Raises CommandError if nothing was recorded.
    """
    found = []
    for lines in sorted(one.glob("rank*.jsonl")):
        if (other / lines.name).exists():
            found.append(_compare(one, other, lines.stem))
    if not found:
        raise CommandError(
            "no step of an optimizer was recorded: expected a training that uses torch.optim, with netsum installed"
        )
    return min((each for each in found if each is not None), key=lambda each: each.step, default=None)


def _compare(one: Path, other: Path, stem: str) -> Difference | None:
    left, right = (_lines(folder / f"{stem}.jsonl") for folder in (one, other))
    rank = int(stem.removeprefix("rank"))
    for a, b in zip(left, right, strict=False):
        if any(a[key] != b[key] for key in _KEY):
            return Difference(rank, a["step"])
        if a["sha256"] != b["sha256"]:
            bits = [_bits(folder / f"{stem}.bin", line) for folder, line in ((one, a), (other, b))]
            at = int(np.flatnonzero((bits[0] != bits[1]).any(1))[0])
            # A rank's part of a sharded tensor has another shape than the tensor.
            shape = a["shape"] if np.prod(a["shape"], dtype=int) == len(bits[0]) else [len(bits[0])]
            element = tuple(int(each) for each in np.unravel_index(at, shape))
            values = ["0x" + each[at][::-1].tobytes().hex() for each in bits]
            return Difference(rank, a["step"], a["kind"], a["tensor"], element, (values[0], values[1]))
    if len(left) != len(right):
        return Difference(rank, max(left, right, key=len)[min(len(left), len(right))]["step"])
    return None


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _bits(path: Path, line: dict[str, Any]) -> Any:
    """Return a tensor as rows of bytes, one row an element."""
    width = np.dtype({"bfloat16": "float16"}.get(line["dtype"], line["dtype"])).itemsize
    with path.open("rb") as data:
        data.seek(line["offset"])
        return np.frombuffer(data.read(line["bytes"]), np.uint8).reshape(-1, width)
