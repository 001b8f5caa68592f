"""Compression for DistributedDataParallel: one line for a trainer, over any back end."""

from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.compression.background import Background
from host_agent.compression.compressor import Compressor
from host_agent.compression.exchange import Reduction, TorchExchange, reduce_over, run
from host_agent.compression.granularity import Granularity, Unit, gathered, scattered, units
from host_agent.compression.memory import Memory
from host_agent.compression.methods.identity import Identity
from host_agent.compression.reducer import CompressionStatistics, Reducer
from host_agent.compression.registry import compressor_of, make_compressor, make_memory, memory_of
from host_agent.compression.uncompressed import Uncompressed
from host_agent.errors import MisuseError
from host_agent.options import Configured, Count, Natural, require

_SPARSE: Final = (
    "compression takes dense gradients, and that of {} is sparse: "
    "make its module with sparse=False, or train without compression"
)
Waiting = tuple[dict[str, Tensor], Tensor, torch.futures.Future[Tensor | Exception]]
"""A bucket: its tensors by name, its buffer, and the future of one or the other."""


class CompressionState(Configured):
    """The state of a communication hook: the compression of a model's gradients, its cost and savings.

    Parameters
    ----------
    compressor : Compressor
        Makes the payloads.
    memory : Memory
        Treats the compression error.
    granularity : {"layer", "bucket", "model"}
        Unit of compression: each parameter tensor, each of DDP's buckets, or all of a model's gradients, which
        then wait for the end of the backward pass.
    block : int, optional
        With "layer": parts of at most this many elements.
    skip_below : int
        Parameter tensors with fewer elements are sent as they are; biases gain nothing from compression.
    names : dict of Tensor to str, optional
        Names of the parameters, for state and statistics.
    exchange : TorchExchange, optional
        The default process group if None.
    measure_error : bool
        Whether statistics have the error of compression: two more passes over each tensor.
    seed : int
        The same at all workers.
    in_background : bool
        Whether buckets on the CPU are reduced in a thread of their own, while the backward pass goes on. It must be False where
        DDP has collectives of its own on the group during the backward pass, or the ranks would begin them in different orders.
    """

    KIND = "compression"

    def __init__(
        self,
        compressor: Compressor,
        memory: Memory,
        granularity: Granularity = "layer",
        *,
        block: Count | None = None,
        skip_below: Natural = 0,
        names: dict[Tensor, str] | None = None,
        exchange: TorchExchange | None = None,
        measure_error: bool = False,
        seed: int = 0,
        in_background: bool = True,
    ) -> None:
        require(
            block is None or granularity == "layer",
            f"compression: block divides layers, so it has no effect with granularity {granularity!r}: leave it out",
        )
        self.granularity, self.block, self.skip_below = granularity, block, skip_below
        self.names = names or {}
        self.exchange = exchange or TorchExchange()
        place = self.exchange.rank, self.exchange.workers
        division = {"granularity": granularity, "block": block, "skip_below": skip_below}
        self.reducer = Reducer(compressor, memory, *place, seed, measure_error, division)
        self._plain = Reducer(make_compressor("identity"), make_memory("none"), *place, seed)
        # Buckets of other types are summed in float32, so in copies. All buckets take one way, or workers would begin them in
        # different orders.
        self._in_place = bool(self.names) and all(each.dtype == torch.float32 for each in self.names)
        self._uncompressed = Uncompressed(self.exchange, self.reducer)
        self._waiting: list[Waiting] = []
        self._background = Background("netsum-compression") if in_background else None

    def switch_to(self, compressor: Compressor, memory: Memory | None = None) -> None:
        """Use another compressor from the next step on; the memory and its state stay unless another is given.

        All workers must do so before the same step.
        """
        self.reducer.switch_to(compressor, memory)

    def set_options(self, **options: Any) -> None:
        """Change options of the compressor from the next step on; called before each step, this is a schedule.

        All workers must do so before the same step.
        """
        self.reducer.set_options(**options)

    def reduce(self, tensors: dict[str, Tensor]) -> None:
        """Replace named tensors by their means over the workers."""
        self._compare(next(iter(tensors.values())).device)
        small = {name: each for name, each in tensors.items() if each.numel() < self.skip_below}
        large = {name: each for name, each in tensors.items() if name not in small}
        pieces: list[tuple[Unit, Reduction]] = []
        for chosen, reducer in ((large, self.reducer), (small, self._plain)):
            sizes = [(name, each.numel()) for name, each in chosen.items()]
            # Uncompressed gradients have the same result in fewer pieces.
            granularity = "bucket" if reducer.sends_all else self.granularity
            for unit in units(sizes, granularity, self.block) if sizes else []:
                tensor = gathered(unit, chosen)
                layout = (
                    tuple((name, chosen[name].numel()) for name in unit.names)
                    if unit.start is None
                    else ((unit.key, tensor.numel()),)
                )
                pieces.append((unit, Reduction(reducer, unit.key, tensor, layout)))
        results = reduce_over(self.exchange, [reduction for _, reduction in pieces])
        for (unit, _), result in zip(pieces, results, strict=True):
            scattered(unit, result, tensors)

    def on_bucket(self, bucket: Any) -> torch.futures.Future[Tensor]:
        """Reduce a bucket of DDP, or keep it until the model is complete."""
        buffer: Tensor = bucket.buffer()
        require(not buffer.is_sparse, _SPARSE.format(self._name(bucket.parameters()[0])))
        tensors = {
            self._name(parameter): gradient
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
        }
        if self.reducer.sends_all and self._in_place:
            self._compare(buffer.device)
            (unit,) = units([(name, each.numel()) for name, each in tensors.items()], "bucket")
            return self._uncompressed.begin(unit.key, buffer)
        future: torch.futures.Future[Tensor | Exception] = torch.futures.Future()
        self._waiting.append((tensors, buffer, future))
        # Before DDP reads the future from C++, which would put its own words before the reason.
        torch.autograd.Variable._execution_engine.queue_callback(lambda: _buffer_of(future))
        if self.granularity == "model" and not bucket.is_last() and not self.reducer.sends_all:
            return future.then(_buffer_of)
        waiting, self._waiting = self._waiting, []
        if buffer.is_cuda or self._background is None:
            # In this thread: on the stream that DDP expects the result on, and before DDP's next collective.
            self._finish(waiting)
        else:
            self._background.submit(lambda: self._finish(waiting))
        return future.then(_buffer_of)

    def _finish(self, waiting: list[Waiting]) -> None:
        """Reduce buckets together, and resolve their futures."""
        try:
            everything = {name: each for part, _, _ in waiting for name, each in part.items()}
            if self.granularity == "model":
                # In the order of names, so that a rebuilding of the buckets does not move elements.
                everything = {name: everything[name] for name in sorted(everything)}
            self.reduce(everything)
        except Exception as error:
            for _, _, future in waiting:
                future.set_result(error)
        else:
            for _, buffer, future in waiting:
                future.set_result(buffer)

    @property
    def statistics(self) -> dict[str, CompressionStatistics]:
        """Cost and savings of compression, by unit."""
        return {**self._plain.statistics, **self.reducer.statistics}

    def total(self) -> CompressionStatistics:
        """Return the statistics in sum."""
        total = self.reducer.total()
        total.add(self._plain.total())
        return total

    def state_dict(self) -> dict[str, Any]:
        """Return all state that the next step depends on, for a checkpoint; each worker has its own."""
        return self.reducer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state that `state_dict` returned."""
        self.reducer.load_state_dict(state)

    def _compare(self, device: torch.device) -> None:
        """Compare the settings of all workers once, those that send gradients uncompressed included."""
        run(self.reducer.comparison(device), self.exchange)

    def _name(self, parameter: Tensor) -> str:
        name = self.names.get(parameter)
        if name is None:
            name = self.names[parameter] = f"parameter-{len(self.names)}"
        return name


def _buffer_of(future: torch.futures.Future[Tensor | Exception]) -> Tensor:
    """Return a bucket's buffer, or raise what went wrong: DDP hears of an error only if a callback raises it."""
    outcome = future.wait()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def compression_hook(state: CompressionState, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Reduce a bucket of DDP; for ``model.register_comm_hook(state, compression_hook)``."""
    return state.on_bucket(bucket)


def compress(
    model: Any,
    compressor: str | Compressor,
    *,
    memory: str | Memory = "none",
    granularity: Granularity = "layer",
    block: int | None = None,
    skip_below: int = 0,
    measure_error: bool = False,
    seed: int = 0,
    **options: Any,
) -> CompressionState:
    """Compress the gradients of a DistributedDataParallel model from now on.

    Parameters
    ----------
    model : DistributedDataParallel
        Without a communication hook.
    compressor : str or Compressor
        A name (``netsum compression list``), whose options follow, or an object.
    memory : str or Memory
        See ``netsum.compression.MEMORIES``.
    granularity, block, skip_below, measure_error, seed
        See `CompressionState`.
    **options
        Of the compressor.

    Returns
    -------
    CompressionState
        Statistics and checkpoints.

    Raises
    ------
    MisuseError
        For an unknown name or option, a module with sparse gradients, and a process group with exact sums.
    IncompatibleError
        If compressor and memory do not fit.

    Examples
    --------
    >>> state = compress(model, "powersgd", rank=4, memory="residual")  # doctest: +SKIP
    """
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise MisuseError(
            f"expected a DistributedDataParallel model, got {type(model).__name__}: wrap it first"
        )
    chosen = compressor_of(compressor, options)
    if getattr(model.process_group, "exact", False) and not isinstance(chosen, Identity):
        raise MisuseError(
            "exact sums (Options(exact=True), NETSUM_EXACT) cannot be combined with compression, which is lossy"
        )
    for name, each in model.module.named_modules():  # Before a step: in one, other buckets are under way.
        sparse = getattr(each, "sparse", False) and any(own.requires_grad for own in each.parameters())
        require(not sparse, _SPARSE.format(f"{name}.weight"))
    state = CompressionState(
        chosen,
        memory_of(memory),
        granularity,
        block=block,
        skip_below=skip_below,
        names={parameter: name for name, parameter in model.module.named_parameters()},
        exchange=TorchExchange(model.process_group),
        measure_error=measure_error,
        seed=seed,
        # DDP then all-reduces which parameters were used.
        in_background=not (model.find_unused_parameters or model.static_graph),
    )
    model.register_comm_hook(state, compression_hook)
    return state
