"""Parameters of a training run."""

import json
from dataclasses import asdict, dataclass

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
