"""What a training run is, and the lines that the runner and its workers exchange about it."""

import json
from dataclasses import asdict, dataclass
from typing import IO, Any

JOB = "digits"
"""The job's name at the controller."""


@dataclass(frozen=True)
class DigitsTask:
    """A training run.

    Attributes
    ----------
    workers
        Number of worker processes.
    lanes
        int32 values a packet carries: 64 or 256.
    steps
        Number of gradient steps.
    hidden
        Units of each hidden layer.
    batch
        Images a worker takes in a step.
    rate
        Learning rate.
    seed
        Of the split, the order of the images and the first parameters.
    slots
        Chunks in flight at most; a power of two.
    timeout_s
        Deadline of a collective, in seconds.
    """

    workers: int = 4
    lanes: int = 256
    steps: int = 200
    hidden: tuple[int, ...] = (512, 256)
    batch: int = 32
    rate: float = 0.05
    seed: int = 0
    slots: int = 64
    timeout_s: float = 10.0

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the network's layers: pixels, hidden units, digits."""
        return (64, *self.hidden, 10)

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "DigitsTask":
        """Read what `to_json` wrote."""
        return DigitsTask(**{**fields, "hidden": tuple(fields["hidden"])})


def write_line(stream: IO[bytes], **message: object) -> None:
    """Send one message: a JSON object on a line of its own."""
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def read_line(stream: IO[bytes]) -> dict[str, Any] | None:
    """Return the next message, or None when the other side has closed the stream."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    message = json.loads(line)
    assert isinstance(message, dict)
    return message
