"""A training run, and the options of `netsum run digits`."""

import json
from dataclasses import asdict, dataclass
from typing import Literal

from netsum.options import json_option, lanes_option
from netsum_common.lane_counts import Lanes
from netsum_common.options import option

JOB = "digits"  # The job's name at the controller.


@dataclass(frozen=True)
class DigitsTask:
    """A training run."""

    workers: int = 4
    lanes: int = 256  # int32 values a packet carries.
    steps: int = 200
    hidden: tuple[int, ...] = (512, 256)  # Units of each hidden layer.
    batch: int = 32  # Images a worker takes in a step.
    rate: float = 0.05
    seed: int = 0  # Seed of the split, the order of the images and the first parameters.
    slots: int = 64  # Chunks in flight at most; a power of two.
    timeout_s: float = 10.0  # Deadline of a collective, in seconds.

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the network's layers: pixels, hidden units, digits."""
        return (64, *self.hidden, 10)

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "DigitsTask":
        """Read what `to_json` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "hidden": tuple(fields["hidden"])})


@dataclass(frozen=True)
class DigitsOptions:
    """A demonstration as the command line says it; None takes what suits the switch."""

    workers: int = option("Worker processes.", 4, within=(1, 32))
    lanes: Lanes | None = lanes_option(None, "int32 values a packet carries. Default: 256; 64 with BMv2.")
    steps: int | None = option("Gradient steps. Default: 200; 60 with BMv2.", within=(1, 100_000))
    drop_percent: float = option(
        "Packets dropped each way in the second run; 0: no second run.", 1.0, within=(0.0, 50.0)
    )
    switch: Literal["embedded", "bmv2"] = option(
        "Switch that runs the P4 program; BMv2 needs Mininet.", "embedded"
    )
    mininet: bool = option(
        "Hosts and switch in network namespaces, not on loopback (root).", False, "--mininet"
    )
    as_json: bool = json_option()
