"""The collectives of a communicator, done by Gloo: for groups that the switch has no slots for."""

import re
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.codecs.accumulator import Accumulator
from host_agent.collectives import Op
from host_agent.collectives.rows import Rows
from host_agent.errors import ClosedCommunicatorError, MisuseError, PeerError
from host_agent.torch.calls import nothing, with_values
from host_agent.torch.reductions import ThroughGloo, check_fit

Array = npt.NDArray[Any]

_OPERATIONS: Final = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "bor": dist.ReduceOp.BOR,
    "product": dist.ReduceOp.PRODUCT,
    "bxor": dist.ReduceOp.BXOR,
}
_WIDER: Final = {np.dtype(np.float16): np.float32, np.dtype(np.int32): np.int64}
"""Types that are added in another one: rounded, or checked for overflow, once at the end."""


class GlooError(PeerError):
    """Gloo could not do a call: a process or a connection failed, or some process was not there in time.

    `collective`: whether all ranks of the group take part in the call. `timed_out`, `cut_off`: whether another process did not
    come in time, or a connection to one broke.
    """

    def __init__(self, error: RuntimeError, collective: bool) -> None:
        # Without the place in Gloo's sources.
        super().__init__(re.sub(r"^\[[^]]*\] *", "", str(error)).strip().removesuffix("."))
        self.collective, self.timed_out = collective, "timed out" in str(error).lower()
        self.cut_off = any(each in str(error) for each in ("onnect", "peer", "clos"))


def future_of(work: Any, finish: Callable[[], Any] = nothing) -> Future[Any]:
    """Return a future of what `finish`, called when a collective of Gloo is done, returns; GlooError if the collective fails."""
    done: Future[Any] = Future()

    def end(gloo_future: torch.futures.Future[Any]) -> None:
        try:
            try:
                gloo_future.value()
            except RuntimeError as error:
                raise GlooError(error, collective=True) from error
            result = finish()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(result)

    work.get_future().add_done_callback(end)
    return done


class GlooReductions:
    """The methods of `Communicator` that a process group uses.

    Labels are not compared. Sums of int64 that do not fit wrap around.

    `gloo`: for this group alone: its collectives must begin in the same order at all ranks.
    """

    def __init__(self, gloo: Any, size: int) -> None:
        self._gloo = gloo
        self._size = size
        self._closed = False

    def allreduce_async(
        self, array: Array | Accumulator, op: Op | ThroughGloo, *, out: Array, **how: Any
    ) -> Future[Any]:
        """Begin to reduce an array over all ranks, densely and in full; see `Communicator.allreduce`."""
        if isinstance(array, Accumulator) or how.get("exact"):
            raise MisuseError(
                "exact sums need slots, and the switch has none free: end a job, or leave out `exact`"
            )
        wider = _WIDER.get(array.dtype, array.dtype) if op in ("sum", "mean") else array.dtype
        working = torch.from_numpy(np.array(array, wider, order="C").reshape(-1))

        def finish() -> None:
            if op == "mean":
                working.div_(self._size)
            result = working.numpy().reshape(out.shape)
            if array.dtype == np.int32 and wider == np.int64:
                check_fit(working, torch.int32)
            np.copyto(out, result, casting="same_kind")

        options = with_values(dist.AllreduceOptions(), reduceOp=_OPERATIONS[op])
        return self._begin(lambda: self._gloo.allreduce([working], options), working, finish)

    def allreduce_rows_async(self, rows: Rows, row_count: int, *, label: str) -> Future[Any]:
        """Begin to add rows over all ranks; see `Communicator.allreduce_rows`."""
        del label
        working = torch.sparse_coo_tensor(
            torch.from_numpy(rows.numbers)[None],
            torch.from_numpy(rows.values),
            (row_count, *rows.values.shape[1:]),
            is_coalesced=True,
        )

        def finish() -> Rows:
            total = working.coalesce()
            return Rows(total.indices()[0].numpy(), total.values().numpy())

        return self._begin(lambda: self._gloo.allreduce([working]), None, finish)

    def all_gather_async(self, array: Array, *, out: Array, label: str) -> Future[Any]:
        """Begin to gather flat arrays of all ranks in the rows of `out`."""
        del label
        rows = [torch.from_numpy(np.empty_like(row)) for row in out]
        return self._begin(
            lambda: self._gloo.allgather([rows], [torch.from_numpy(array.copy())]),
            rows[0],
            lambda: np.stack([row.numpy() for row in rows], out=out),
        )

    def broadcast_async(self, array: Array, root: int, *, out: Array, label: str) -> Future[Any]:
        """Begin to overwrite a flat array with that of the rank `root`."""
        del label
        working = torch.from_numpy(array.copy())
        options = with_values(dist.BroadcastOptions(), rootRank=root)
        return self._begin(
            lambda: self._gloo.broadcast([working], options), working, lambda: np.copyto(out, working.numpy())
        )

    def barrier_async(self, *, label: str) -> Future[Any]:
        """Begin to wait for all ranks."""
        del label
        return self._begin(self._gloo.barrier, None, lambda: None)

    def close(self) -> None:
        """Begin nothing more."""
        self._closed = True

    def _begin(
        self, begin: Callable[[], Any], working: Tensor | None, finish: Callable[[], Any]
    ) -> Future[Any]:
        if self._closed:
            raise ClosedCommunicatorError("the process group was destroyed")
        if working is not None and working.numel() == 0:
            done: Future[Any] = Future()
            done.set_result(None)
            return done
        return future_of(begin(), finish)
