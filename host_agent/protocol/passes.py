"""One run over the data, as the core executes it."""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.codecs.codec import Codec
from host_agent.codecs.payload import PAYLOAD
from host_agent.protocol.records import CONTRIBUTES_DATA, PASS
from netsum_common.compiled import Records

_NO_DATA = np.zeros(0, np.uint8)
ALL_BLOCKS: Final = (0, 1 << 62)
NO_BLOCKS: Final = (0, 0)
_PAYLOAD_AT: Final = PASS.fields["payload"][1] if PASS.fields else 0
_WORD_OF: Final = {name: at // 8 for name, (_, at, *_) in (PASS.fields or {}).items()} | {
    name: (_PAYLOAD_AT + at) // 8 for name, (_, at, *_) in (PAYLOAD.fields or {}).items()
}
"""Offset of each field in a pass's record, in words of 8 bytes; the payload's fields have names of their own."""


@dataclass
class Pass:
    """The core's work on one array, and the memory that it needs until it is done."""

    codec: Codec  # How blocks become lanes.
    op: int  # `OP_*` of the switch.
    fingerprint: int  # 28 bits.
    # source, target: contiguous arrays of `elements` elements. The contribution and the place of results; may be the
    # same array, except for the low halves of int32 sums (the pass over the high halves reads the source again). Both have
    # the codec's type.
    source: npt.NDArray[Any] = field(default_factory=lambda: _NO_DATA)
    target: npt.NDArray[Any] = field(default_factory=lambda: _NO_DATA)
    flip: int = 0  # −1 to complement (MIN), else 0.
    divisor: int = 1  # Divisor of block floating point sums.
    contributes: int = CONTRIBUTES_DATA  # `CONTRIBUTES_*`.
    # Value of the exponent field where no exponent travels: `PART_*` of `host_agent.wire.parts`, or 0.
    part: int = 0
    blocks: npt.NDArray[np.int64] | None = None  # The numbers of the blocks to go over; all if unset.
    # This worker's exponent of every block of the array, found before. Blocks that are *all zero* are then contributed as a
    # worker does that has nothing to add.
    own: npt.NDArray[np.uint16] | None = None
    seed: int | None = None  # Seed of stochastic rounding; None: numbers are rounded to the nearest.
    # Blocks of the array, from the first number to the one before the second. header_only: RESULTs of these may be header-only,
    # which a codec of one round allows. data: it contributes to these, and to the others as if they were zero.
    header_only: tuple[int, int] = NO_BLOCKS
    data: tuple[int, int] = ALL_BLOCKS
    offered: bool | None = (
        None  # Quorum chunk: whether this worker contributes from the beginning; None: no quorum chunk.
    )
    decides: bool = False  # Whether contributions to later passes depend on the results of this sum.
    # Wire exponents of all workers' blocks, in the order of the pass, if the codec has any.
    exponents: npt.NDArray[np.uint16] = field(init=False, default_factory=lambda: np.zeros(0, np.uint16))
    partial: npt.NDArray[Any] = field(init=False, default_factory=lambda: _NO_DATA)
    record: Records = field(init=False)
    slot_count: int = field(
        init=False, default=0
    )  # Slots of the epoch that it runs in; 0 before it was laid out.
    done: bool = field(init=False, default=False)  # Whether all RESULTs have come.

    @property
    def added(self) -> int:
        """Bits of the workers that a quorum chunk has added, when it is done."""
        return int(self.record["added"][0])

    def lay_out(self, lane_count: int, slot_count: int, header_only: int = 0) -> Records:
        """Allocate what the pass needs and return its record (`PASS`, one element).

        `header_only`: whether the switches make header-only RESULTs; if not, the attribute `header_only` has no effect.
        """
        self.slot_count = slot_count
        codec = self.codec
        elements = self.target.size
        data_blocks = -(-elements // (lane_count * codec.per_lane))
        if self.blocks is not None:
            data_blocks = self.blocks.size
        lead = 0
        chunks = codec.rounds * data_blocks
        dependency = data_blocks if codec.rounds > 1 else 0
        if codec.encode is None:
            chunks = int(codec.exponent is None)  # Exponents travel in chunks of their own, below.
        if codec.partial is not None:
            self.partial = np.empty(elements, codec.partial)
        if codec.exponent is not None:
            self.exponents = np.zeros(data_blocks, np.uint16)
            lead = dependency = min(slot_count, data_blocks)
            chunks += lead
        values = {
            "op": self.op,
            "fingerprint": self.fingerprint,
            "contributes": self.contributes,
            "part": self.part,
            "lead": lead,
            "dependency": dependency,
            "chunks": chunks,
            "quorum": self.offered is not None,
            "offered": self.offered is True,
            "header_only_from": self.header_only[0] if header_only else 0,
            "header_only_to": self.header_only[1] if header_only else 0,
            "data_from": self.data[0],
            "data_to": self.data[1],
        }
        payload = {
            "encode": codec.encode.address if codec.encode else 0,
            "decode": codec.decode.address if codec.decode else 0,
            "exponent": codec.exponent.address if codec.exponent else 0,
            "least_exponent": codec.exponents[0],
            "greatest_exponent": codec.exponents[1],
            "may_be_non_finite": codec.non_finite,
            "per_lane": codec.per_lane,
            "flip": self.flip,
            "divisor": self.divisor,
            "elements": elements,
            "data_blocks": data_blocks,
            "source": self.source.ctypes.data,
            "target": self.target.ctypes.data,
            "exponents": self.exponents.ctypes.data,
            "partial": self.partial.ctypes.data,
            "blocks": self.blocks.ctypes.data if self.blocks is not None else 0,
            "own": self.own.ctypes.data if self.own is not None else 0,
            "stochastic": self.seed is not None,
            "seed": self.seed or 0,
            **codec.settings,
        }
        # All fields are int64: setting one after the other takes longer than the rest of this method.
        words = [0] * (PASS.itemsize // 8)
        for name, value in (values | payload).items():
            words[_WORD_OF[name]] = int(value)
        self.record = np.array(words, np.int64).view(PASS)
        return self.record
