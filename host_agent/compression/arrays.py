"""Compression of NumPy arrays, for `Communicator.allreduce`."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from host_agent.communicator import Communicator
from host_agent.compression.compressor import Compressor
from host_agent.compression.exchange import CommunicatorExchange, Reduction, reduce_over
from host_agent.compression.memory import Memory
from host_agent.compression.reducer import CompressionStatistics, Reducer
from host_agent.compression.registry import compressor_of, memory_of
from host_agent.errors import MisuseError, UnsupportedTypeError
from host_agent.options import Configured

_DTYPES = ("float32", "float64", "float16")


class Compression(Configured):
    """A compressor, a memory and their state, with which `Communicator.allreduce` compresses arrays.

    The state is kept by the label of the call: arrays that are reduced again and again, such as the gradients of a layer,
    need a label each. All workers must use it alike.

    `compressor`: a name (``netsum compression list``), whose options follow, or an object. `memory`: the treatment of the
    compression error (``netsum compression memories``). `seed`: seed of random choices; the same at all workers.
    `measure_error`: whether statistics have the error of compression: two more passes over each array. `**options`: options of
    the compressor. Raises
    MisuseError: for an unknown name or option. Raises IncompatibleError if compressor and memory do not fit.

    Examples
    --------
    >>> from host_agent.compression import Compression
    >>> compression = Compression("top-k", memory="residual", fraction=0.01)
    >>> mean = comm.allreduce(gradient, "mean", compression=compression, label="w")  # doctest: +SKIP
    """

    KIND = "compression"

    def __init__(
        self,
        compressor: Any,
        *,
        memory: Any = "none",
        seed: int = 0,
        measure_error: bool = False,
        **options: Any,
    ) -> None:
        self.compressor = compressor_of(compressor, options)
        self.memory = memory_of(memory)
        self._seed, self._measure_error = seed, measure_error
        self._reducer: Reducer | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        # Refuses a pairing that makes no sense now rather than with the first array.
        self.memory.attach(self.compressor, 1)

    def allreduce(
        self, communicator: Communicator, array: npt.ArrayLike, op: Literal["sum", "mean"], label: str
    ) -> npt.NDArray[Any]:
        """Reduce an array; see `Communicator.allreduce` for the errors."""
        values = np.asarray(array)
        if values.dtype.name not in _DTYPES or op not in ("sum", "mean"):
            raise UnsupportedTypeError(
                f"compression takes the sum and mean of {', '.join(_DTYPES)}, not {op!r} of {values.dtype}"
            )
        if self._shapes.setdefault(label, values.shape) != values.shape:
            raise MisuseError(
                f"compression keeps its state by label, and the array labelled {label!r} had the shape "
                f"{self._shapes[label]} before, not {values.shape}: give each array a label of its own"
            )
        exchange = CommunicatorExchange(communicator)
        gradient = torch.from_numpy(np.ascontiguousarray(values))
        (reduced,) = reduce_over(exchange, [Reduction(self._reducer_of(exchange), label, gradient)])
        mean: npt.NDArray[Any] = reduced.numpy()
        return mean * values.dtype.type(exchange.workers) if op == "sum" else mean

    def switch_to(self, compressor: Compressor, memory: Memory | None = None) -> None:
        """Use another compressor from the next call on; see `Reducer.switch_to`."""
        if self._reducer is not None:
            self._reducer.switch_to(compressor, memory)
        else:
            (memory or self.memory).attach(compressor, 1)
        self.compressor, self.memory = compressor, memory or self.memory

    def set_options(self, **options: Any) -> None:
        """Change options of the compressor from the next call on; see `Reducer.set_options`."""
        self.switch_to(self.compressor.with_options(**options))

    @property
    def statistics(self) -> dict[str, CompressionStatistics]:
        """Cost and savings of compression, by label."""
        return {} if self._reducer is None else self._reducer.statistics

    def state_dict(self) -> dict[str, Any]:
        """Return all state that the next call depends on, for a checkpoint; each worker has its own."""
        if self._reducer is None:
            raise MisuseError("no state to save: nothing was compressed yet")
        return self._reducer.state_dict()

    def load_state_dict(self, communicator: Communicator, state: dict[str, Any]) -> None:
        """Take a state that `state_dict` returned, for calls on a communicator."""
        reducer = self._reducer_of(CommunicatorExchange(communicator))
        reducer.load_state_dict(state)
        self.compressor, self.memory = reducer.compressor, reducer.memory

    def _reducer_of(self, exchange: CommunicatorExchange) -> Reducer:
        place = exchange.rank, exchange.workers
        if self._reducer is None:
            self._reducer = Reducer(self.compressor, self.memory, *place, self._seed, self._measure_error)
        if place != (self._reducer.rank, self._reducer.workers):
            raise MisuseError(
                f"this compression was used as worker {self._reducer.rank} of {self._reducer.workers}, and the communicator "
                f"is worker {exchange.rank} of {exchange.workers}: make a compression for each communicator"
            )
        return self._reducer
