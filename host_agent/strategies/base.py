"""The base class of strategies, and its interface for a training loop."""

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.compression.compressor import COMPARISON, Compressor
from host_agent.compression.memory import Memory
from host_agent.errors import MisuseError
from host_agent.options import Configured, require
from host_agent.strategies.exchange import StrategyExchange, Traffic
from host_agent.words import plural

STRATEGIES: "dict[str, type[Strategy]]" = {}
"""All strategies by name. A subclass of `Strategy` that has a name of its own enters itself."""


class Strategy(Configured):
    """Decides the contents, times and receivers of the messages between the workers of a training.

    It is used in a training loop of the user's own, at every worker alike::

        with netsum.strategy("diloco", model, optimizer, sync_every=50) as s:
            for inputs, targets in batches:
                with s.step():
                    loss_function(model(inputs), targets).backward()

    All workers start with the model of rank 0. Every worker takes the same number of steps, unless the strategy says otherwise.
    A subclass overrides `before_step`, `after_backward`, `after_step` and `at_end`, none of which it must.

    Parameters
    ----------
    model : torch.nn.Module
        Not wrapped in DistributedDataParallel.
    optimizer : torch.optim.Optimizer
        Of the model's parameters.
    group : ProcessGroup, optional
        The workers; the default group if None.
    scaler : torch.amp.GradScaler, optional
        For mixed precision: the loss is scaled by the caller, the rest is done here.
    compression : str or Compressor, optional
        Compresses what is averaged (gradients or changes of the model); a name, or an object of
        `host_agent.compression.make_compressor`.
    memory : str or Memory
        Treatment of the compression error, such as "residual" (error feedback).

    Attributes
    ----------
    traffic : Traffic
        Bytes that this worker sent and received.

    Raises
    ------
    MisuseError
        The model is wrapped, or there is no process group.
    """

    KIND = "strategy"
    # name, summary, source: in lists and errors; one sentence; the paper.
    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    use: ClassVar[str] = COMPARISON  # Circumstances in which to choose it.
    cost: ClassVar[
        str
    ]  # Bytes that a worker sends a step: d of the model, n workers, H steps between averages.
    STATE: ClassVar[tuple[str, ...]] = ()  # Attributes that `state_dict` saves.
    COMPRESSES: ClassVar[bool] = True  # Whether `compression` has a meaning.

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if name := cls.__dict__.get("name"):
            if name in STRATEGIES and STRATEGIES[name].__qualname__ != cls.__qualname__:
                raise MisuseError(f"there is a strategy {name!r} already, {STRATEGIES[name].__qualname__}")
            STRATEGIES[name] = cls

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        *,
        group: Any = None,
        scaler: Any = None,
        compression: str | Compressor | None = None,
        memory: str | Memory = "none",
    ) -> None:
        self.require(
            compression is not None or memory == "none",
            "memory keeps what compression lost, so it has no effect without compression: leave it out, or name a compressor "
            "as compression",
        )
        self.require(
            not isinstance(model, torch.nn.parallel.DistributedDataParallel),
            "expected the module itself, not DistributedDataParallel, which averages the gradients of every step: pass "
            "model.module and run the loop with it",
        )
        self.require(
            group is not None or (dist.is_available() and dist.is_initialized()),
            "there is no process group: call torch.distributed.init_process_group first",
        )
        self.model, self.optimizer, self.scaler = model, optimizer, scaler
        require(
            compression is None or self.COMPRESSES,
            f"strategy {self.name} does not take compression: it sends no means of gradients or models",
        )
        self.exchange = StrategyExchange(group, self.name, compression, memory)
        self.steps = 0  # Updates of the model by this worker's optimizer.
        self._parameters: list[Tensor] = [each for each in model.parameters() if each.requires_grad]
        self.require(bool(self._parameters), "the model has no parameter that requires a gradient")
        self._entered = self._restored = False
        self._clear_gradients = True

    # Overridden by subclasses

    def at_start(self) -> None:
        """Run before the first step, unless a state was loaded: take the model of rank 0."""
        self.load(self.exchange.broadcast(self.vector()))
        for each in self._buffers():
            each.copy_(self.exchange.broadcast(each))

    def before_step(self) -> None:
        """Run before the forward pass."""

    def after_backward(self) -> bool:
        """Run when the gradients are there; return whether the optimizer takes its step now."""
        return True

    def after_step(self) -> None:
        """Run after a step of the optimizer; `steps` counts it already."""

    def at_end(self) -> None:
        """Run after the last step, if the loop ended without an exception."""

    def loss(self, loss: Tensor, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Return the loss with the strategy's own term: none by default."""
        return loss

    # Used by training loops

    @property
    def rank(self) -> int:
        """The rank of this worker."""
        return self.exchange.rank

    @property
    def workers(self) -> int:
        """The number of workers in the group."""
        return self.exchange.workers

    @property
    def traffic(self) -> Traffic:
        """Bytes that this worker sent and received so far."""
        return self.exchange.traffic

    def __enter__(self) -> Self:
        if not self._restored:
            self.at_start()
        self._entered = True
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self._entered = False
        if kind is None:
            self.at_end()

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Run a block that computes gradients as one step of the training.

        The gradients are cleared before it, and the optimizer takes its step after it.
        """
        self.require(self._entered, "step() is used outside of its with-block")
        self.before_step()
        if self._clear_gradients:
            self.optimizer.zero_grad()
        yield
        self._clear_gradients = self.after_backward()
        if self._clear_gradients:
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            self.steps += 1
            self.after_step()

    def state_dict(self) -> dict[str, Any]:
        """Return this worker's state of the strategy for a checkpoint; the model and the optimizer are saved by the caller."""
        state: dict[str, Any] = {
            "strategy": self.name,
            "steps": self.steps,
            "traffic": self.traffic.as_dict(),
        }
        for name in self.STATE:
            value = getattr(self, name)
            state[name] = value.detach().clone() if isinstance(value, Tensor) else value
        if self.exchange.reducer is not None:
            state["compression"] = self.exchange.reducer.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state that `state_dict` returned, before the with-block begins; every worker its own.

        The model of rank 0 is then not broadcast: each worker restores its own model and optimizer.

        Raises
        ------
        MisuseError
            The state is another strategy's, or the with-block has begun.
        """
        kind = state.get("strategy")
        self.require(kind == self.name, f"expected a state of this strategy, not of {kind!r}")
        self.require(not self._entered, "load the state before the with-block")
        self.steps = state["steps"]
        self.traffic.load(state["traffic"])
        for name in self.STATE:
            value = state[name]
            setattr(self, name, value.clone() if isinstance(value, Tensor) else value)
        if self.exchange.reducer is not None:
            self.exchange.reducer.load_state_dict(state["compression"])
        self._restored = True

    # Used by strategies

    def require(self, condition: bool, message: str) -> None:
        """Raise `MisuseError`, with the strategy's name before the message, unless a condition holds."""
        require(condition, f"strategy {self.name}: {message}")

    @torch.no_grad()
    def vector(self) -> Tensor:
        """Return a copy of the model's trainable parameters, one after the other, of shape (parameters,)."""
        return torch.cat([each.reshape(-1) for each in self._parameters])

    @torch.no_grad()
    def load(self, vector: Tensor) -> None:
        """Set the model's trainable parameters to what `vector` returned, or to something of its shape."""
        for parameter, part in zip(self._parameters, self._split(vector), strict=True):
            parameter.copy_(part)

    def gradient(self) -> Tensor:
        """Return a copy of the gradients in the order of `vector`; zeros for parameters that have none."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        return torch.cat([each.detach().reshape(-1) for each in gradients])

    def load_gradient(self, vector: Tensor) -> None:
        """Set the gradients."""
        for parameter, part in zip(self._parameters, self._split(vector), strict=True):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(part)

    def average_models(self, reference: Tensor) -> Tensor:
        """Load the mean of all workers' models, and return it as a vector.

        The workers send the difference from `reference`, which all workers have alike: it is smaller than the model, so that
        lossy number formats lose less of it.
        """
        mean = reference + self.exchange.compressed_mean(self.vector() - reference)
        self.load(mean)
        return mean

    def average_buffers(self) -> None:
        """Replace floating-point buffers, such as the statistics of a batch normalization, by their means."""
        for each in self._buffers():
            each.copy_(self.exchange.mean(each))

    def _buffers(self) -> list[Tensor]:
        return [each for each in self.model.buffers() if each.is_floating_point()]

    def _split(self, vector: Tensor) -> Iterator[Tensor]:
        parts = vector.split([each.numel() for each in self._parameters])
        return (part.view_as(each) for part, each in zip(parts, self._parameters, strict=True))


def contiguous_groups(strategy: str, workers: int, groups: int) -> list[list[int]]:
    """Divide the ranks 0 to `workers` - 1 into groups of one size, each of ranks that follow one another.

    Raises
    ------
    MisuseError
        The workers cannot be divided into this many groups.
    """
    require(
        workers % groups == 0,
        f"strategy {strategy}: {plural(workers, 'worker')} cannot be divided into {plural(groups, 'group')}",
    )
    size = workers // groups
    return [list(range(start, start + size)) for start in range(0, workers, size)]
