"""A worker that reduces known gradients with every compressor that a sum serves: ``compressed_worker.py RANK WORLD ROWS RESULT``.

Its admission and its address come as a line of JSON on standard input. The reduced gradients go to RESULT, an ``.npz`` file
with an array (steps, rows, columns) for each compressor.
"""

import json
import sys
from copy import copy

import numpy as np
import torch

from host_agent.communicator import Communicator
from host_agent.compression import (
    COMPRESSORS,
    CommunicatorExchange,
    Reducer,
    Summability,
    make_compressor,
    make_memory,
)
from host_agent.compression.exchange import run
from host_agent.wire import Admission
from host_agent.wire.constants import HEADER_BYTES

STEPS = 3
TIMEOUT_S = 120.0
SUMMABLE = [name for name, each in COMPRESSORS.items() if each.summability is not Summability.NONE]


def gradient(step: int, rank: int, rows: int = 30) -> torch.Tensor:
    """A rank's contribution to a step: (rows, 50)."""
    return torch.randn(rows, 50, generator=torch.Generator().manual_seed(100 * step + rank))


def reducer(name: str, rank: int, world: int) -> Reducer:
    """A worker's end of a compressor, with error feedback where it goes with it."""
    memory = "residual" if COMPRESSORS[name].linear else "average"
    return Reducer(make_compressor(name), make_memory(memory), rank, world)


def main() -> None:
    rank, world, rows, result = *map(int, sys.argv[1:4]), sys.argv[4]
    life = json.loads(sys.stdin.readline())
    admission = Admission.from_json(life["admission"])
    reduced, bytes_of = {}, {}
    with Communicator(admission, bind=tuple(life["bind"]), timeout_s=TIMEOUT_S) as communicator:
        exchange = CommunicatorExchange(communicator)
        for name in SUMMABLE:
            own = reducer(name, rank, world)
            before = copy(communicator.total_stats)
            means = [run(own.rounds("x", gradient(step, rank, rows)), exchange) for step in range(STEPS)]
            after, total = communicator.total_stats, own.total()
            packets = after.packets_sent - before.packets_sent
            sent = after.bytes_sent - before.bytes_sent
            bytes_of[name] = {
                "promised": total.bytes_payload + total.bytes_agreed,
                "lanes": sent - packets * HEADER_BYTES,
                "packets": packets,
            }
            reduced[name] = np.stack([mean.numpy() for mean in means])
        total_stats = communicator.total_stats
        said = {
            "retransmissions": total_stats.retransmissions,
            "packets": total_stats.packets_sent,
            "bytes": total_stats.bytes_sent,
            "of": bytes_of,
        }
        print(json.dumps(said), flush=True)
    np.savez(result, **reduced)  # type: ignore[arg-type]  # NumPy's stub takes no arrays by name.


if __name__ == "__main__":
    main()
