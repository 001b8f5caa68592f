"""A worker that reduces known gradients with every compressor that a sum serves: ``compressed_worker.py RANK WORLD RESULT``.

Its admission and its address come as a line of JSON on standard input. The reduced gradients go to RESULT, an ``.npz`` file
with an array (steps, rows, columns) for each compressor.
"""

import json
import sys

import numpy as np
import torch

from host_agent import Admission, Communicator
from host_agent.compression import (
    COMPRESSORS,
    CommunicatorExchange,
    Reducer,
    Summability,
    make_compressor,
    make_memory,
)
from host_agent.compression.exchange import run

STEPS = 3
TIMEOUT_S = 120.0
SUMMABLE = [name for name, each in COMPRESSORS.items() if each.summability is not Summability.NONE]


def gradient(step: int, rank: int) -> torch.Tensor:
    """What a rank contributes in a step."""
    return torch.randn(30, 50, generator=torch.Generator().manual_seed(100 * step + rank))


def reducer(name: str, rank: int, world: int) -> Reducer:
    """A worker's end of a compressor with error feedback."""
    return Reducer(make_compressor(name), make_memory("residual"), rank, world)


def main() -> None:
    rank, world, result = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    life = json.loads(sys.stdin.readline())
    admission = Admission.from_json(life["admission"])
    reduced = {}
    with Communicator(admission, bind=tuple(life["bind"]), timeout_s=TIMEOUT_S) as communicator:
        exchange = CommunicatorExchange(communicator)
        for name in SUMMABLE:
            own = reducer(name, rank, world)
            means = [run(own.rounds("x", gradient(step, rank)), exchange) for step in range(STEPS)]
            reduced[name] = np.stack([mean.numpy() for mean in means])
        print(json.dumps({"retransmissions": communicator.total_stats.retransmissions}), flush=True)
    np.savez(result, **reduced)  # type: ignore[arg-type]  # NumPy's stub takes no arrays by name.


if __name__ == "__main__":
    main()
