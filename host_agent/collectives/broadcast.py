"""The root's array at every worker, and the barrier."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from host_agent.arrays import check_plain, flat_source, flat_target
from host_agent.codecs.codec import NOTHING
from host_agent.codecs.raw import WORDS
from host_agent.collectives.collective import Array, Collective, check_root
from host_agent.protocol.passes import ALL_BLOCKS, NO_BLOCKS, Pass
from host_agent.protocol.records import CONTRIBUTES_DATA, CONTRIBUTES_NOTHING
from host_agent.statistics import Statistics
from host_agent.wire import Admission, describe_dtype, fingerprint
from host_agent.wire.constants import OP_BOR, OP_SUM


@dataclass(frozen=True)
class BarrierRequest:
    """A collective that is done when all workers have begun it."""

    def plan(self, admission: Admission, sequence: int) -> Collective[None]:
        """Plan the barrier; see `Request.plan`."""
        mark = fingerprint(kind="barrier", sequence=sequence)
        return Collective(
            f"barrier number {sequence}", 0, iter((Pass(NOTHING, OP_SUM, mark),)), lambda statistics: None
        )


@dataclass(frozen=True, eq=False)
class BroadcastRequest:
    """The distribution of the root's array; the fields are the arguments of `Communicator.broadcast`."""

    array: npt.ArrayLike
    root: int
    out: Array | None = None

    def plan(self, admission: Admission, sequence: int) -> Collective[Array]:
        """Plan the distribution; see `Request.plan`."""
        values = np.asarray(self.array)
        check_plain(values, "broadcast")
        check_root(self.root, admission.world_size, "broadcast")
        dtype = values.dtype.newbyteorder("=")
        mark = fingerprint(
            kind="broadcast",
            dtype=describe_dtype(dtype),
            count=values.size,
            root=int(self.root),
            sequence=sequence,
        )
        target, deliver = flat_target(values, dtype, self.out, may_be_source=True)
        words = (
            target.view(np.uint32) if values.nbytes % 4 == 0 else np.zeros(values.nbytes // 4 + 1, np.uint32)
        )
        source = words
        contributes, header_only = CONTRIBUTES_NOTHING, NO_BLOCKS
        if admission.rank == self.root:
            source = _padded_words(flat_source(values, dtype))
            contributes, header_only = CONTRIBUTES_DATA, ALL_BLOCKS
        if values.nbytes == 0:
            only = Pass(NOTHING, OP_BOR, mark)
        else:
            only = Pass(WORDS, OP_BOR, mark, source, words, contributes=contributes, header_only=header_only)

        def finish(statistics: Statistics) -> Array:
            if admission.rank == self.root and not np.may_share_memory(source, words):
                words[:] = source  # The switch may have left the lanes out of its RESULTs.
            if not np.may_share_memory(target, words):
                target.view(np.uint8)[:] = words.view(np.uint8)[: values.nbytes]
            return deliver()

        what = f"broadcast number {sequence} ({values.size} {dtype} from worker {self.root})"
        return Collective(what, values.size, iter((only,)), finish, disjoint=True)


def _padded_words(flat: Array) -> npt.NDArray[np.uint32]:
    """Return the bytes of a flat array as 32-bit words, the last one filled up with zeros."""
    if flat.nbytes % 4 == 0:
        return flat.view(np.uint32)
    words = np.zeros(flat.nbytes // 4 + 1, np.uint32)
    words.view(np.uint8)[: flat.nbytes] = flat.view(np.uint8)
    return words
