"""Lossy compression of gradients.

A *compressor* maps a tensor to a payload and back. A *memory* decides what happens to the part that was lost. A
*granularity* decides which tensors are compressed together. The *route* of a payload follows from the compressor's
summability: through a switch's slots as integers, an all-reduce of floats, or an all-gather.

A compressor is not a codec: a codec (``host_agent.codecs``) maps an array to the lanes of packets, and its error bound holds
for every block; a compressor drops information on purpose.

Needs PyTorch.
"""

from host_agent.compression.arrays import Compression
from host_agent.compression.compressor import (
    Agreement,
    Compressor,
    Context,
    IncompatibleError,
    Payload,
    Summability,
)
from host_agent.compression.exchange import CommunicatorExchange, Exchange, TorchExchange, reduce_in_process
from host_agent.compression.hook import CompressionState, compress, compression_hook
from host_agent.compression.memory import Memory
from host_agent.compression.reducer import Reducer
from host_agent.compression.registry import COMPRESSORS, MEMORIES, make_compressor, make_memory

__all__ = [
    "COMPRESSORS",
    "MEMORIES",
    "Agreement",
    "CommunicatorExchange",
    "Compression",
    "CompressionState",
    "Compressor",
    "Context",
    "Exchange",
    "IncompatibleError",
    "Memory",
    "Payload",
    "Reducer",
    "Summability",
    "TorchExchange",
    "compress",
    "compression_hook",
    "make_compressor",
    "make_memory",
    "reduce_in_process",
]
