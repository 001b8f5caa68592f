"""All compressors and memories by name."""

from __future__ import annotations

import inspect
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
from host_agent.compression.methods.eden import DRIVE, EDEN
from host_agent.compression.methods.eight_bit import EightBit
from host_agent.compression.methods.hybrid import Qsparse, RandomBlockFloat
from host_agent.compression.methods.identity import BFloat16, Identity
from host_agent.compression.methods.inceptionn import Inceptionn
from host_agent.compression.methods.intsgd import IntSGD
from host_agent.compression.methods.low_rank import Atomo, PowerSGD
from host_agent.compression.methods.natural import Natural
from host_agent.compression.methods.qsgd import QSGD
from host_agent.compression.methods.random_k import RandomK, RandomKIndependent
from host_agent.compression.methods.signs import OneBit, ScaledSign, SignVote
from host_agent.compression.methods.sketch import CountSketch
from host_agent.compression.methods.sketchml import SketchML
from host_agent.compression.methods.terngrad import TernGrad
from host_agent.compression.methods.thc import THC
from host_agent.compression.methods.three_lc import ThreeLC
from host_agent.compression.methods.top_k import (
    DGC,
    AdaptiveThreshold,
    AgreedTopK,
    BlockTopK,
    Threshold,
    TopK,
)
from host_agent.errors import MisuseError

COMPRESSORS: Final[dict[str, type[Compressor]]] = {
    each.name: each
    for each in (
        Identity, BFloat16, BlockFloat, IntSGD, QSGD, TernGrad, Natural, SignVote, ScaledSign, OneBit, THC, DRIVE, EDEN,
        EightBit, Inceptionn, SketchML,
        RandomK, RandomKIndependent, TopK, BlockTopK, Threshold, AdaptiveThreshold, DGC, AgreedTopK,
        Qsparse, RandomBlockFloat, ThreeLC, CountSketch, PowerSGD, Atomo,
    )
}  # fmt: skip
MEMORIES: Final[dict[str, type[Memory]]] = {
    each.name: each for each in (NoMemory, Residual, EF21, Diana, MomentumCorrection, Momentum)
}


def make_compressor(name: str, **options: Any) -> Compressor:
    """Return a compressor by name.

    Raises
    ------
    MisuseError
        For a name, or an option, that does not exist; the message lists those that do.
    """
    made: Compressor = _made("compressor", COMPRESSORS, name, options)
    return made


def compressor_of(compressor: str | Compressor, options: dict[str, Any]) -> Compressor:
    """Return a compressor of a name and options, or the object itself.

    Raises
    ------
    MisuseError
        For an unknown name or option, and for options beside an object.
    """
    if isinstance(compressor, str):
        return make_compressor(compressor, **options)
    if options:
        raise MisuseError(f"options {', '.join(options)} go with a compressor's name, not with an object")
    return compressor


def make_memory(name: str, **options: Any) -> Memory:
    """Return a memory by name; see `make_compressor`."""
    made: Memory = _made("memory", MEMORIES, name, options)
    return made


def _made(kind: str, table: dict[str, Any], name: str, options: dict[str, Any]) -> Any:
    if name not in table:
        raise MisuseError(f"unknown {kind} {name!r}: expected one of {', '.join(table)}")
    known = [
        each
        for each in inspect.signature(table[name].__init__).parameters
        if each not in ("self", "args", "kwargs")
    ]
    for option in options:
        if option not in known:
            raise MisuseError(
                f"{kind} {name} has no option {option!r}: expected {', '.join(known) or 'none'}"
            )
    return table[name](**options)
