"""The base class of compressors, their payloads and the properties that they declare."""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from host_agent.errors import MisuseError
from host_agent.options import Configured, require_known

COMPARISON = (
    "for comparisons"  # The use of methods that others surpass, or that no measurement of ours favours.
)
Payload = tuple[Tensor, ...]
"""The payload of one worker. Tensors of a summable payload have the same shapes and types at all workers."""


class IncompatibleError(MisuseError):
    """A pairing of compressor, memory and granularity that makes no sense."""


class Summability(Enum):
    """Whether the element-wise sum of several workers' payloads means something."""

    INTEGERS = "integers"  # Sums of int32 are exact, so the payload goes through a switch's slots as it is.
    FLOATS = "floats"  # Sums of float32 are meaningful: an all-reduce.
    NONE = "none"  # Every worker needs every payload: an all-gather.


@dataclass(frozen=True)
class Agreement:
    """Values on which all workers agree before they compress, such as a common scale."""

    tensor: Tensor  # This worker's contribution; same shape and type at all workers.
    # How the contributions are combined. For "broadcast" only the root's counts.
    op: Literal["sum", "max", "broadcast"]
    root: int = 0  # The sender of a broadcast.


@dataclass(frozen=True)
class Context:
    """Circumstances of the compression of a tensor."""

    key: str  # Identifies the tensor, alike at all workers and in all steps. State is kept by it.
    shape: torch.Size  # Shape of the tensor.
    device: torch.device  # Device of the tensor.
    # rank, workers: of the group that reduces it.
    rank: int
    workers: int
    step: int  # How often this key was reduced before.
    seed: int = 0  # Seed of the run; the same at all workers.

    @property
    def elements(self) -> int:
        """Number of elements."""
        return int(self.shape.numel())

    def shared_generator(self) -> torch.Generator:
        """Random numbers that are the same at all workers; new ones for each key and step."""
        return self._generator("shared")

    def own_generator(self) -> torch.Generator:
        """Random numbers of this worker; independent of the other workers'."""
        return self._generator(str(self.rank))

    def _generator(self, stream: str) -> torch.Generator:
        text = f"{self.seed}/{self.key}/{self.step}/{stream}".encode()
        generator = torch.Generator(device=self.device)
        generator.manual_seed(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1)
        return generator


class Stateful(Configured):
    """Something with options, and with state by key as tensors, so that it can be saved."""

    def __init__(self) -> None:
        self.state: dict[str, dict[str, Tensor]] = {}

    def with_options(self, **options: Any) -> Self:
        """Return one with other options and the same state.

        Raises MisuseError: for an unknown option or a value that it does not take.
        """
        require_known(self._label(), self.options, options)
        made = type(self)(**{**self.options, **options})
        made.state = self.state
        return made

    def state_dict(self) -> dict[str, Any]:
        """Return the state by key, for a checkpoint."""
        return {key: dict(tensors) for key, tensors in self.state.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state that `state_dict` returned."""
        self.state = {key: dict(tensors) for key, tensors in state.items()}


class Compressor(Stateful, ABC):
    """Maps a tensor to a payload and back.

    A subclass is a file in ``methods/``. It declares the class attributes below; the tests hold it to them. A compressor with
    state (a warm start, a running average) keeps it in `state` by `Context.key`, as tensors, so that it can be saved.
    """

    KIND = "compressor"
    name: ClassVar[str]  # In the registry, options and tables.
    family: ClassVar[str]  # Class of methods.
    source: ClassVar[str]  # The paper.
    use: ClassVar[str] = COMPARISON  # Circumstances in which to choose it.
    summability: ClassVar[Summability]  # Summability of the payload.
    unbiased: bool  # Whether E[decompress(compress(x))] = x.
    # Whether decompressing a sum of payloads gives the sum of the decompressed payloads. False for votes, whose
    # payloads are summed on purpose and decompressed to something else.
    linear: ClassVar[bool] = True

    def omega(self, elements: int, workers: int = 1) -> float | None:
        """Return ω with Σ E‖C(x_i) − x_i‖² ≤ ω Σ ‖x_i‖² over the workers; None if no such bound is declared.

        The tensors have that many elements. The number of workers matters where they agree on a scale.
        """
        return None

    def delta(self, elements: int, workers: int = 1) -> float | None:
        """Return δ with Σ E‖C(x_i) − x_i‖² ≤ (1 − δ) Σ ‖x_i‖² (a contraction); None if no such bound is declared."""
        return None

    def agree(self, tensor: Tensor, context: Context) -> Agreement | None:
        """Return what must be agreed on before this tensor can be compressed; None by default."""
        return None

    @abstractmethod
    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        """Compress a tensor.

        `tensor` (float32 tensor): of shape `context.shape`. `shared`: the combined `Agreement.tensor`.
        Returns tuple of Tensor: int32 if `summability` is INTEGERS, float32 if FLOATS, any type if NONE.
        """

    @abstractmethod
    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        """Return the sum of the tensors of `count` workers from the sum of their payloads.

        Payloads that cannot be summed are decompressed one by one, with the sender's rank in `context.rank`.
        """

    def reduced(self, mean: Tensor, context: Context) -> None:
        """Take note of the mean over all workers, for compressors that adapt to it."""


def payload_bytes(payload: Payload) -> int:
    """Bytes of a payload."""
    return sum(int(tensor.numel() * tensor.element_size()) for tensor in payload)


def fraction_of(elements: int, fraction: float) -> int:
    """Return how many elements a fraction selects: at least one, unless there are none."""
    return min(elements, max(1, round(elements * fraction)))
