"""The codecs, and which of them an all-reduce uses."""

from typing import Final

from host_agent.codecs import accumulator, exact
from host_agent.codecs.block_float import FLOAT32, FLOAT64
from host_agent.codecs.codec import NOTHING, Codec
from host_agent.codecs.halves import INT32, INT32_HIGH
from host_agent.codecs.ordered import FLOAT32_ORDER, FLOAT64_ORDER
from host_agent.codecs.packed import PACKED
from host_agent.codecs.raw import WORDS, WORDS_MAX

CODECS: Final = (
    NOTHING,
    FLOAT32,
    FLOAT64,
    PACKED,
    INT32,
    INT32_HIGH,
    WORDS,
    WORDS_MAX,
    FLOAT32_ORDER,
    FLOAT64_ORDER,
)

CODEC_OF: Final[dict[tuple[str, str], Codec]] = {
    reduction: codec for codec in CODECS for reduction in codec.reduces
}
"""By dtype and operation. int64 is split into int32 arrays first (`host_agent.collectives.int64`)."""


def load_all() -> None:
    """Compile all routines, or load them from the cache, before the first collective needs them."""
    for codec in CODECS:
        codec.load()
    exact.load()
    accumulator.load()
