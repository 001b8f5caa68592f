"""The exact sum of arrays of one worker, as a few arrays of float64 that are never rounded.

Each new array is added to the first part with the error of every addition, the errors to the second part, and so on; a part more
is made when errors remain. (Knuth, The Art of Computer Programming, volume 2, 4.2.2; Ogita, Rump, Oishi: Accurate Sum and Dot
Product, SIAM Journal on Scientific Computing 26(6), 2005.) float16 needs one part, normally distributed float32 one or two.
"""

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent.codecs.exact import BLOCK, Floats
from host_agent.errors import ArrayError, MisuseError, UnsupportedTypeError
from netsum_common.compiled import compiled

TYPES: Final = ("float16", "float32", "float64")
MOST_SUMMANDS: Final = 1 << 16  # Limit for all workers together.


@compiled
def add_exactly(part: Floats, rest: Floats) -> bool:
    """Add `rest` to `part`, leave the errors of the additions in `rest`, and return whether there is any.

    The error is -0.0 where there is none. Where a sum leaves float64, both numbers stay as they are.
    """
    remains = False
    for i in range(rest.size):
        one, other = part[i], rest[i]
        total = one + other
        back = total - one
        error = (one - (total - back)) + (other - back)
        if math.isfinite(error):
            part[i] = total
            remains |= error != 0.0
            rest[i] = error if error != 0.0 else -0.0
        elif math.isfinite(one) and math.isfinite(other):
            remains = True
        else:
            part[i] = total
            rest[i] = -0.0
    return remains


class Accumulator:
    """The exact sum of arrays that are added one by one, for ``Communicator.allreduce(accumulator, exact=True)``.

    The all-reduce empties the accumulator, which can then be used again.

    Parameters
    ----------
    shape : tuple of int
        Of every array.
    dtype : {"float16", "float32", "float64"}
        Of every array, and of the result.

    Raises
    ------
    UnsupportedTypeError
        For another type.

    Examples
    --------
    >>> total = Accumulator((3,), "float32")
    >>> for gradient in ([1e8, 1, 2], [1, 2, 3], [-1e8, 3, 4]):
    ...     total.add(np.array(gradient, np.float32))
    ...
    >>> total.count
    3
    """

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype).newbyteorder("=")
        if self.dtype.name not in TYPES:
            raise UnsupportedTypeError(f"exact sums take {', '.join(TYPES)}, not {self.dtype}")
        self._size = math.prod(shape)
        self._parts: list[Floats] = []
        self._count = 0

    @property
    def count(self) -> int:
        """Number of arrays added since the last all-reduce."""
        return self._count

    def add(self, array: npt.NDArray[Any]) -> None:
        """Add an array, which can be changed afterwards.

        Raises
        ------
        ArrayError
            It has another shape or type.
        MisuseError
            There are 65,536 already.
        """
        if array.shape != self.shape or array.dtype.newbyteorder("=") != self.dtype:
            raise ArrayError(
                f"expected {self.dtype} of shape {self.shape} like the other summands, "
                f"got {array.dtype} of shape {array.shape}"
            )
        if self._count == MOST_SUMMANDS:
            raise MisuseError(f"an exact sum takes at most {MOST_SUMMANDS} summands of all workers")
        self._count += 1
        rest = np.zeros(-(-self._size // BLOCK) * BLOCK)
        rest[: self._size] = array.reshape(-1)
        for part in self._parts:
            if not add_exactly(part, rest):
                return
        self._parts.append(rest)

    def drain(self) -> tuple[list[Floats], int]:
        """Return the parts, each padded to whole blocks, and the number of arrays in them; and begin again at zero."""
        parts, count = self._parts, self._count
        self._parts, self._count = [], 0
        if not parts:
            # Minus zero is what changes no sum.
            parts = [np.full(-(-self._size // BLOCK) * BLOCK, -0.0)]
        return parts, count


def load() -> None:
    """Compile this code, or load it from the cache."""
    add_exactly(np.zeros(1), np.zeros(1))
