"""One run over the data, as the core executes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from host_agent.compiled import Records
from host_agent.packetize.blocks import (
    CODING_FLOAT64_ORDER,
    CODING_INT32_HIGH,
    CODING_NOTHING,
    has_exponents,
)
from host_agent.protocol.records import CONTRIBUTES_DATA, PASS

_NO_DATA = np.zeros(0, np.uint8)


@dataclass
class Pass:
    """What the core is to do with one array, and the memory that it needs until it is done.

    Parameters
    ----------
    coding : int
        One of `host_agent.packetize.blocks.CODING_*`.
    op : int
        `OP_*` of the switch.
    fingerprint : int
        16 bits.
    source, target : contiguous arrays of `elements` elements
        What is contributed, and where results go; may be the same array, except for the low halves of int32 sums (the
        pass over the high halves reads the source again). Of the type that the coding says.
    flip : int
        −1 to complement (MIN), else 0.
    divisor : int
        What block floating point sums are divided by.
    contributes : int
        `CONTRIBUTES_*`: data, header-only, or zeros.
    blocks : int64 array, optional
        For CODING_INT32_HIGH: the numbers of the blocks to go over.
    """

    coding: int
    op: int
    fingerprint: int
    source: npt.NDArray[Any] = field(default_factory=lambda: _NO_DATA)
    target: npt.NDArray[Any] = field(default_factory=lambda: _NO_DATA)
    flip: int = 0
    divisor: int = 1
    contributes: int = CONTRIBUTES_DATA
    blocks: npt.NDArray[np.int64] | None = None
    exponents: npt.NDArray[np.uint16] = field(init=False, default_factory=lambda: np.zeros(0, np.uint16))
    partial: npt.NDArray[Any] = field(init=False, default_factory=lambda: _NO_DATA)
    record: Records = field(init=False)

    def lay_out(self, lane_count: int, slot_count: int) -> Records:
        """Allocate what the pass needs and return its record (`PASS`, one element)."""
        elements = self.target.size
        data_blocks = -(-elements // lane_count)
        lead = dependency = 0
        chunks = data_blocks
        if self.coding == CODING_NOTHING:
            chunks = 1
        elif self.coding == CODING_INT32_HIGH:
            assert self.blocks is not None
            self.partial = self.blocks
            data_blocks = chunks = self.blocks.size
        elif self.coding == CODING_FLOAT64_ORDER:
            self.partial = np.empty(elements, np.int32)
            dependency = data_blocks
            chunks = 2 * data_blocks
        elif has_exponents(self.coding):
            self.exponents = np.zeros(data_blocks, np.uint16)
            lead = dependency = min(slot_count, data_blocks)
            chunks = lead + data_blocks
        self.record = np.zeros(1, PASS)
        values = {
            "coding": self.coding,
            "op": self.op,
            "fingerprint": self.fingerprint,
            "contributes": self.contributes,
            "flip": self.flip,
            "divisor": self.divisor,
            "elements": elements,
            "data_blocks": data_blocks,
            "lead": lead,
            "dependency": dependency,
            "chunks": chunks,
            "source": self.source.ctypes.data,
            "target": self.target.ctypes.data,
            "exponents": self.exponents.ctypes.data,
            "partial": self.partial.ctypes.data,
        }
        for name, value in values.items():
            self.record[name] = value
        return self.record
