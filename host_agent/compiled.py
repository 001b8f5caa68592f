"""How the host agent's per-packet code is compiled, and the types that its annotations use."""

import numpy as np
import numpy.typing as npt

from netsum_common.compiled import Integer, Record, Records, Routine, compiled

__all__ = ["Integer", "Record", "Records", "Routine", "Words", "compiled"]

Words = npt.NDArray[np.uint32]  # Part of a datagram: 32-bit words in network byte order.
