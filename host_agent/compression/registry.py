"""All compressors and memories by name."""

from typing import Any, Final

from host_agent.compression.compressor import Compressor
from host_agent.compression.memory import (
    EF21,
    Diana,
    Memory,
    Momentum,
    MomentumCorrection,
    NoMemory,
    Residual,
)
from host_agent.compression.methods.block_float import BlockFloat
from host_agent.compression.methods.chunk_top_k import AgreedChunkTopK, ChunkTopK
from host_agent.compression.methods.hybrid import RandomBlockFloat
from host_agent.compression.methods.identity import Identity
from host_agent.compression.methods.low_rank import PowerSGD
from host_agent.compression.methods.natural import Natural
from host_agent.compression.methods.qsgd import QSGD
from host_agent.compression.methods.random_k import RandomK, RandomKIndependent
from host_agent.compression.methods.signs import ScaledSign, SignVote
from host_agent.compression.methods.terngrad import TernGrad
from host_agent.compression.methods.thc import THC
from host_agent.compression.methods.top_k import DGC, AgreedTopK, TopK
from host_agent.options import parameters_of, require, require_known

COMPRESSORS: Final[dict[str, type[Compressor]]] = {
    each.name: each
    for each in (
        Identity, BlockFloat, QSGD, TernGrad, Natural, SignVote, ScaledSign, THC, RandomK, RandomKIndependent,
        TopK, DGC, AgreedTopK, ChunkTopK, AgreedChunkTopK, RandomBlockFloat, PowerSGD,
    )
}  # fmt: skip
_DROPPED: Final = {
    "block-float": ("bfloat16", "intsgd", "eight-bit", "inceptionn", "eden", "drive"),
    "scaled-sign": ("onebit",),
    "chunk-top-k": ("block-top-k", "sketchml", "qsparse"),
    "agreed-chunk-top-k": ("count-sketch",),
    "top-k": ("threshold", "adaptive-threshold"),
    "terngrad": ("3lc",),
    "powersgd": ("atomo",),
}  # Compressors of earlier versions, by what to use instead.
MEMORIES: Final[dict[str, type[Memory]]] = {
    each.name: each for each in (NoMemory, Residual, EF21, Diana, MomentumCorrection, Momentum)
}


def make_compressor(name: str, **options: Any) -> Compressor:
    """Return a compressor by name.

    Raises MisuseError: for a name, or an option, that does not exist, and for a value that an option does not take; the
    message names the expected ones.
    """
    for instead, dropped in _DROPPED.items():
        require(name not in dropped, f"compressor {name} is no longer there: use {instead}")
    made: Compressor = _made("compressor", COMPRESSORS, name, options)
    return made


def compressor_of(compressor: str | Compressor, options: dict[str, Any]) -> Compressor:
    """Return a compressor of a name and options, or the object itself, which takes no options."""
    if isinstance(compressor, Compressor):
        require(not options, f"options {', '.join(options)} go with a compressor's name, not with an object")
        return compressor
    return make_compressor(compressor, **options)


def make_memory(name: str, **options: Any) -> Memory:
    """Return a memory by name; see `make_compressor`."""
    made: Memory = _made("memory", MEMORIES, name, options)
    return made


def memory_of(memory: str | Memory) -> Memory:
    """Return a memory by name, or the object itself."""
    return memory if isinstance(memory, Memory) else make_memory(memory)


def _made(kind: str, table: dict[str, Any], name: str, options: dict[str, Any]) -> Any:
    require(
        isinstance(name, str) and name in table,
        f"unknown {kind} {name!r}: expected one of {', '.join(table)}",
    )
    require_known(f"{kind} {name}", parameters_of(table[name]), options)
    return table[name](**options)
