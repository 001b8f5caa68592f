"""Declared properties of every compressor, and its reduction of the bytes that a worker receives."""

from dataclasses import dataclass
from typing import Final

import torch

from host_agent.compression.compressor import Summability
from host_agent.compression.exchange import reduce_in_process
from host_agent.compression.memory import NoMemory
from host_agent.compression.reducer import Reducer
from host_agent.compression.registry import COMPRESSORS

ROUTES: Final = {Summability.INTEGERS: "slots", Summability.FLOATS: "sum", Summability.NONE: "gather"}


@dataclass(frozen=True)
class Entry:
    """A compressor with its default options."""

    # name, family, source: as declared.
    name: str
    family: str
    route: str  # By which a payload travels.
    biased: bool  # Whether its expectation differs from the tensor.
    bound: str  # Declared ω or δ for this many elements and workers; empty if there is none.
    # Bytes of a float32 tensor over those that come back to one worker: a sum, or the payloads of all workers.
    ratio: float
    use: str  # Circumstances in which to choose it.
    source: str


def survey(elements: int, workers: int) -> list[Entry]:
    """Return an entry for each compressor, measured on normally distributed tensors of this many elements."""
    side = max(1, int(elements**0.5))
    generator = torch.Generator().manual_seed(0)
    # A matrix as square as can be, so that methods of low rank have something to factor.
    tensors = [torch.randn(side, elements // side, generator=generator) for _ in range(workers)]
    entries = []
    for name, make in COMPRESSORS.items():
        compressor = make()
        reducers = [Reducer(make(), NoMemory(), rank, workers) for rank in range(workers)]
        reduce_in_process(reducers, "x", tensors)
        total = reducers[0].total()
        payloads = workers if compressor.summability is Summability.NONE else 1
        omega, delta = compressor.omega(elements, workers), compressor.delta(elements, workers)
        bound = f"ω {omega:.3g}" if omega is not None else f"δ {delta:.3g}" if delta is not None else ""
        entries.append(
            Entry(
                name,
                compressor.family,
                ROUTES[compressor.summability],
                not compressor.unbiased,
                bound,
                total.bytes_before / (total.bytes_agreed + total.bytes_payload * payloads),
                compressor.use,
                compressor.source,
            )
        )
    return entries
