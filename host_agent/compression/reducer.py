"""One tensor's way through a compressor and a memory, as a generator of rounds. No communication, no clock of its own.

A driver (`exchange`) runs the generator: it carries out each round over its group and sends the result back. So the same
code runs over torch.distributed, over a `Communicator`, and for a hundred simulated workers in one process.
"""

import hashlib
import json
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability, payload_bytes
from host_agent.compression.memory import Layout, Memory, NoMemory
from host_agent.compression.methods.identity import Identity
from host_agent.options import require


@dataclass(frozen=True)
class CompressedRound:
    """One collective over tensors of one worker."""

    tensors: Payload  # This worker's.
    # The result of "gather" is `Gathered`; of the others a tuple like `tensors`.
    op: Literal["sum", "max", "broadcast", "gather"]
    root: int = 0  # The sender of a broadcast.


class Gathered(list[Payload]):
    """The payloads of all workers in the order of ranks; the tensors' lengths may differ."""

    # The sum of the decompressed payloads, once one worker has computed it: workers in one process share it.
    total: Tensor | None = None


Rounds = Generator[CompressedRound, Any, Tensor]
_NARROW: Final = (torch.float16, torch.bfloat16)


@dataclass
class CompressionStatistics:
    """Cost and savings of compression, for one key or in sum."""

    steps: int = 0  # Reductions.
    bytes_before: int = 0  # Bytes of the uncompressed tensors.
    bytes_agreed: int = 0  # Contributed to agreements.
    bytes_payload: int = 0  # Bytes of this worker's payloads.
    # bytes_sent, bytes_received: of the Ethernet frames of all rounds, headers and retransmissions included, as this
    # worker's communicator counts them; 0 over back ends that count nothing.
    bytes_sent: int = 0
    bytes_received: int = 0
    compress_ns: int = 0  # Time in compressor and memory, without communication.
    # error, norm: sums over the steps of ‖C(y) − y‖² and ‖y‖² of the compressed tensors y; 0 unless the reducer measures
    # errors.
    error: float = 0.0
    norm: float = 0.0

    def add(self, other: "CompressionStatistics") -> None:
        """Add another's numbers to these."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass
class Reducer:
    """A compressor with its memory. Raises IncompatibleError if compressor and memory do not fit."""

    compressor: Compressor  # Makes the payloads.
    memory: Memory = field(default_factory=NoMemory)  # Treats the compression error.
    # rank, workers: of the group.
    rank: int = 0
    workers: int = 1
    seed: int = 0  # The same at all workers.
    # Whether statistics have `error` and `norm`: two more passes over each tensor.
    measure_error: bool = False
    # Settings of the driver that all workers must have alike, such as the granularity.
    division: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory.attach(self.compressor, self.workers)
        self.statistics: dict[str, CompressionStatistics] = {}
        self._steps: dict[str, int] = {}
        self._difference: str | None = None

    def comparison(self, device: torch.device) -> Generator[CompressedRound, Any, None]:
        """Return the rounds that compare the settings of all workers: one before the first tensor, and none afterwards.

        Raises MisuseError: at all workers, if one of them has another setting than rank 0.
        """
        if self._difference is None:
            self._difference = yield from self._compared(device)
        require(
            not self._difference, self._difference
        )  # Also later, without a round that not all workers may begin.

    def _compared(self, device: torch.device) -> Generator[CompressedRound, Any, str]:
        """Return how the workers differ; empty if they do not."""
        settings: dict[str, object] = {"compressor": self.compressor.name}
        settings |= {f"option {name}": value for name, value in self.compressor.options.items()}
        settings["memory"] = self.memory.name
        settings |= {f"memory option {name}": value for name, value in self.memory.options.items()}
        settings |= {"seed": self.seed, **self.division}
        text = json.dumps({name: str(value) for name, value in settings.items()}).encode()
        digest = _words(hashlib.blake2b(text, digest_size=16).digest(), torch.int32, device)
        largest, inverted = yield CompressedRound((digest, ~digest), "max")
        if torch.equal(largest, ~inverted):  # ~ reverses the order: the least are the largest.
            return ""
        payloads = yield CompressedRound((_words(text, torch.uint8, device),), "gather")
        first, *others = (json.loads(bytes(parts[0].tolist())) for parts in payloads)
        differences = (
            f"{name} is {wanted} at rank 0 and {given.get(name)} at rank {rank}"
            for name, wanted in first.items()
            for rank, given in enumerate(others, start=1)
            if given.get(name) != wanted
        )
        return (
            f"the ranks compress differently: {next(differences)}: "
            "give all ranks the same compressor, memory, options, seed and granularity"
        )

    def rounds(self, key: str, gradient: Tensor, layout: Layout | None = None) -> Rounds:
        """Return the rounds that reduce a tensor to (the estimate of) its mean over the workers.

        Every worker must run the rounds of the same keys in the same order. If any worker's tensor is not finite, or its
        decompressed payload or the sum is not, the result is NaN at all workers and no state changes, so that a step can be
        skipped.

        `key`: the same at all workers and in all steps. `gradient`: not changed. `layout`: the parameters in it, by which
        the memory keeps its state; the key alone by default. Send each round its result; the generator returns a tensor of
        the gradient's shape and type.
        """
        if gradient.numel() == 0:
            return gradient.clone()
        yield from self.comparison(gradient.device)
        began = time.perf_counter_ns()
        statistics = CompressionStatistics(steps=1, bytes_before=gradient.numel() * gradient.element_size())
        context = Context(
            key, gradient.shape, gradient.device, self.rank, self.workers, self._steps.get(key, 0), self.seed
        )
        # The memory works in the gradient's own precision: differences of float64 may be far below the values.
        values = gradient.to(torch.float32) if gradient.dtype in _NARROW else gradient
        layout = layout or ((key, gradient.numel()),)
        remembered = self.memory.before(layout, values)
        tensor = remembered.to(torch.float32)
        finite = _is_finite(tensor)

        shared = None
        agreement = self.compressor.agree(tensor, context)
        if agreement is not None:
            asked = agreement.tensor if finite else _poisoned(agreement.tensor, agreement.op)
            statistics.bytes_agreed = payload_bytes((asked,))
            statistics.compress_ns += time.perf_counter_ns() - began
            (shared,) = yield CompressedRound((asked,), agreement.op, agreement.root)
            began = time.perf_counter_ns()
            if shared.is_floating_point() and not torch.isfinite(shared).all():
                self._count(key, statistics)
                return torch.full_like(gradient, torch.nan)

        # A worker without finite values still takes part, with a payload that says so.
        payload = self.compressor.compress(tensor if finite else torch.zeros_like(tensor), shared, context)
        # For the memory, which takes differences of both: finite values may come out as infinite ones.
        own = None if self._needs_no_own else self.compressor.decompress(payload, shared, context)
        finite = finite and (own is None or _is_finite(tensor - own))
        statistics.bytes_payload = payload_bytes(payload)
        statistics.compress_ns += time.perf_counter_ns() - began
        if self.compressor.summability is Summability.NONE:
            flagged = (*payload, torch.tensor([finite], dtype=torch.uint8, device=tensor.device))
            gathered = yield CompressedRound(flagged, "gather")
            began = time.perf_counter_ns()
            all_finite = all(bool(parts[-1]) for parts in gathered)
            total = self._sum_of(gathered, shared, context) if all_finite else None
        else:
            bad = 0 if finite else 1 if self.compressor.summability is Summability.INTEGERS else torch.nan
            flag = torch.full((1,), bad, dtype=payload[0].dtype, device=tensor.device)
            *summed, flags = yield CompressedRound((*payload, flag), "sum")
            began = time.perf_counter_ns()
            all_finite = bool(flags == 0)
            total = self.compressor.decompress(tuple(summed), shared, context, self.workers)
        # All workers have the bits of the same sum, so they judge it alike.
        if not all_finite or total is None or not _is_finite(total):
            self._count(key, statistics)
            return torch.full_like(gradient, torch.nan)

        mean = total / self.workers
        own = mean if own is None else own
        estimate = self.memory.after(layout, values, remembered, own.to(values.dtype), mean.to(values.dtype))
        self.compressor.reduced(mean, context)
        self._steps[key] = context.step + 1
        if self.measure_error:
            statistics.error = float((own - tensor).square().sum())
            statistics.norm = float(tensor.square().sum())
        statistics.compress_ns += time.perf_counter_ns() - began
        self._count(key, statistics)
        return estimate.to(gradient.dtype)

    @property
    def sends_all(self) -> bool:
        """Whether tensors are sent as they are, and nothing is remembered."""
        return type(self.compressor) is Identity and isinstance(self.memory, NoMemory)

    def count_uncompressed(self, key: str, tensor: Tensor, spent_ns: int) -> None:
        """Count a tensor that a driver has reduced as it is, because the reducer `sends_all`."""
        size = tensor.numel() * tensor.element_size()
        self._steps[key] = self._steps.get(key, 0) + 1
        self._count(
            key,
            CompressionStatistics(steps=1, bytes_before=size, bytes_payload=size, compress_ns=spent_ns),
        )

    @property
    def _needs_no_own(self) -> bool:
        return isinstance(self.memory, NoMemory) and not self.measure_error

    def _sum_of(self, gathered: Gathered, shared: Tensor | None, context: Context) -> Tensor:
        if gathered.total is None:
            for rank, parts in enumerate(gathered):
                part = self.compressor.decompress(parts[:-1], shared, replace(context, rank=rank))
                gathered.total = part if gathered.total is None else gathered.total.add_(part)
        assert gathered.total is not None
        return gathered.total

    def switch_to(self, compressor: Compressor, memory: Memory | None = None) -> None:
        """Use another compressor from the next tensor on, and another memory if one is given.

        Counts of steps, statistics and the state of a memory that stays go on. All workers must switch at the same place.

        Raises IncompatibleError if compressor and memory do not fit; nothing has changed then.
        """
        kept = memory if memory is not None else self.memory
        kept.attach(compressor, self.workers)
        self.compressor, self.memory = compressor, kept

    def set_options(self, **options: Any) -> None:
        """Change options of the compressor, such as ``fraction``; its state and its other options stay.

        All workers must do so at the same place. A schedule is a call of this before each step.

        Raises MisuseError: for an unknown option or a value that it does not take; nothing has changed then.
        """
        self.switch_to(self.compressor.with_options(**options))

    def count_wire(self, key: str, sent: int, received: int) -> None:
        """Add a driver's counts for a tensor to its statistics."""
        self._count(key, CompressionStatistics(bytes_sent=sent, bytes_received=received))

    def contributed(self, key: str) -> int:
        """Return the bytes that this worker has put into rounds of a tensor so far."""
        statistics = self.statistics.get(key, CompressionStatistics())
        return statistics.bytes_agreed + statistics.bytes_payload

    def _count(self, key: str, statistics: CompressionStatistics) -> None:
        self.statistics.setdefault(key, CompressionStatistics()).add(statistics)

    def total(self) -> CompressionStatistics:
        """Return the statistics summed over all keys."""
        total = CompressionStatistics()
        for each in self.statistics.values():
            total.add(each)
        return total

    def state_dict(self) -> dict[str, Any]:
        """Return the state of compressor, memory and random streams, by key; their options included."""
        return {
            "name": self.compressor.name,
            "options": dict(self.compressor.options),
            "compressor": self.compressor.state_dict(),
            "memory_name": self.memory.name,
            "memory_options": dict(self.memory.options),
            "memory": self.memory.state_dict(),
            "steps": dict(self._steps),
            "seed": self.seed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state that `state_dict` returned.

        Raises MisuseError if it is that of another compressor or of another memory, or lacks a part.
        """
        lacking = [name for name in self.state_dict() if name not in state]
        require(
            not lacking,
            f"the checkpoint lacks {' and '.join(lacking)}: expected what state_dict() returns; "
            "to one of an earlier version add its memory's name and options",
        )
        for kind, name, own in (
            ("compressor", state["name"], self.compressor.name),
            ("memory", state["memory_name"], self.memory.name),
        ):
            require(
                name == own,
                f"the checkpoint was written with {kind} {name}, and this one is {own}: switch to that {kind} first",
            )
        self.switch_to(
            self.compressor.with_options(**state["options"]),
            self.memory.with_options(**state["memory_options"]),
        )
        self.compressor.load_state_dict(state["compressor"])
        self.memory.load_state_dict(state["memory"])
        self._steps = dict(state["steps"])
        self.seed = state["seed"]


def _words(data: bytes, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=dtype).to(device)


def _is_finite(tensor: Tensor) -> bool:
    """Whether all values are; in one pass, as NaN and infinities survive both extremes."""
    return bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all())


def _poisoned(tensor: Tensor, op: str) -> Tensor:
    """Return a contribution that makes the agreement non-finite at every worker.

    Infinity survives every back end's maximum; NaN does not. A broadcast of integers carries no such mark: the payload's
    flag does.
    """
    if not tensor.is_floating_point():
        return torch.zeros_like(tensor)
    return torch.full_like(tensor, torch.inf if op == "max" else torch.nan)
