"""A rank's part in a job of a framework other than PyTorch: JAX, MPI, Keras.

Ranks meet by whatever their framework has to send a line of text from the first rank to all (`Share`). A session's collectives
take arrays of many types, and its errors name the rank that left.
"""

import contextlib
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from host_agent.codecs.accumulator import Accumulator
from host_agent.collectives import Op
from host_agent.communicator import Communicator
from host_agent.errors import (
    ClosedCommunicatorError,
    MismatchError,
    MisuseError,
    NetsumError,
    PeerError,
    SumOverflowError,
    UnsupportedTypeError,
)
from host_agent.joining import JoinError, Membership, join
from host_agent.joining.invitation import invite, refuse_elsewhere
from host_agent.torch.options import Options  # imports no PyTorch
from netsum_common.closing import Closing

Array = npt.NDArray[Any]
T = TypeVar("T")
Share = Callable[[str], str]
"""Takes the first rank's text, and anything from the others; returns the first rank's text at every rank."""

LEAVING_GRACE_S: Final = 2.0
"""How long a collective may go on after a rank has left: one that all took part in still ends well."""
_CLOSING: Final = "end of the session"
_WIDER: Final = {
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16"), "int32"),
    **dict.fromkeys(("bfloat16", "float8_e4m3fn", "float8_e5m2"), "float32"),
    "complex64": "float32",
    "complex128": "float64",
}
"""Types that are reduced in another one."""
_AS_IT_IS: Final = ("float16", "float32", "float64", "int32", "int64")


class Session(Closing):
    """The collectives of one rank; made by `begin`.

    All ranks call the same collectives in the same order. Each takes a label, which the ranks must agree on.
    """

    def __init__(self, membership: Membership, timeout_s: float, options: Options) -> None:
        self._membership, self._options, self._timeout_s = membership, options, timeout_s
        self._communicator = membership.communicator(timeout_s, trust=options.trust)
        self._calls = itertools.count()
        self._left: dict[int, float] = {}
        self._end = ""
        self._closer: threading.Timer | None = None
        self._closed = False
        membership.watch(self._on_left, self._on_end, lambda _, reason: self._on_end(reason))

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self._communicator.worker_id

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._communicator.num_workers

    @property
    def communicator(self) -> Communicator:
        """The worker, for its statistics."""
        return self._communicator

    def allreduce(
        self, array: npt.ArrayLike, op: Op = "sum", *, label: str, out: Array | None = None
    ) -> Array:
        """Reduce an array of any number type over all ranks; the result has the same bits everywhere.

        Types that the switch does not add are reduced in a wider one and converted back. A sum of narrow integers that does not
        fit raises SumOverflowError; the sum of bool is "or". `out`: receives the result; may be `array`.
        """
        array = np.asarray(array)
        check_reducible(array.dtype, op)
        name, complex_ = array.dtype.name, array.dtype.kind == "c"
        working = np.asarray(array, order="C")
        if complex_:
            working = working.reshape(-1).view(_WIDER[name])
        elif name in _WIDER:
            working = working.astype(_WIDER[name])
        how = self._options.of(working, op, name if array.dtype.kind == "V" else "", self.size)
        do: Op = "max" if name == "bool" and op == "sum" else op
        direct = out if out is not None and working.dtype == out.dtype and out.flags.c_contiguous else None
        result = self._run(
            label,
            op,
            array,
            lambda text: self._communicator.allreduce(working, do, out=direct, label=text, **how),
        )
        if complex_:
            result = result.view(array.dtype).reshape(array.shape)
        elif array.dtype.kind in "iu" and name in _WIDER and op == "sum":
            limits = np.iinfo(array.dtype)
            beyond = int(((result < limits.min) | (result > limits.max)).sum())
            if beyond:
                raise SumOverflowError(
                    f"{label}: {beyond} sums do not fit {name}: convert to a wider type", beyond
                )
        if direct is not None:
            return direct
        result = result.astype(array.dtype, copy=False)
        if out is None:
            return result
        out[...] = result
        return out

    def reduce_scatter(self, array: Array, op: Op = "sum", *, label: str) -> Array:
        """Reduce an array of any type that `allreduce` takes; each rank gets its part of the first dimension."""
        if array.dtype.name not in _AS_IT_IS or (self._options.exact and array.dtype.kind == "f"):
            rows = array.shape[0] // self.size
            return self.allreduce(array, op, label=label)[rows * self.rank : rows * (self.rank + 1)]
        return self._run(
            label,
            f"scattered {op}",
            array,
            lambda text: self._communicator.reduce_scatter(array, op, label=text),
        )

    def all_gather(self, array: Array, *, label: str) -> Array:
        """Return the arrays of all ranks, stacked in the order of the ranks."""
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        rows = self._run(
            label, "all_gather", array, lambda text: self._communicator.all_gather(flat, label=text)
        )
        return rows.view(array.dtype).reshape(self.size, *array.shape)

    def broadcast(self, array: Array, root: int = 0, *, label: str) -> Array:
        """Return the root's array at every rank."""
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        kind = f"broadcast from rank {root}"
        sent = self._run(
            label, kind, array, lambda text: self._communicator.broadcast(flat, root, label=text)
        )
        return sent.view(array.dtype).reshape(array.shape)

    def barrier(self, *, label: str = "barrier") -> None:
        """Return when all ranks have called it."""
        self._run(label, "barrier", None, lambda text: self._communicator.barrier(label=text))

    def exact(
        self, summands: Accumulator | Sequence[Array], op: Op = "sum", *, label: str, to: str = ""
    ) -> Array:
        """Return the sum or mean of all ranks' summands, correctly rounded once: the same bits however they are shared out.

        `summands`: float16, float32 or float64, of one shape; an `Accumulator` where a rank may have none. `to`: "bfloat16"
        rounds float32 to that type's values.
        """
        given: Any = summands
        first = given if isinstance(given, Accumulator) else np.asarray(given[0])
        how: Any = to or True
        return self._run(
            label,
            f"exact {op}",
            first,
            lambda text: self._communicator.allreduce(given, op, exact=how, label=text),
        )

    def close(self) -> None:
        """Wait for the other ranks, whose last collectives need this one, and leave the job.

        A rank that ends because of an exception does not wait: the others hear that it left.
        """
        if self._closed:
            return
        self._closed = True
        failing = sys.exc_info()[1] is not None or getattr(sys, "last_value", None) is not None
        if not (failing or self._left or self._end):
            with contextlib.suppress(NetsumError):
                self._communicator.barrier(label=_CLOSING)
        self._communicator.close()
        self._membership.close()

    def _run(self, label: str, kind: str, array: Any, call: Callable[[str], T]) -> T:
        """Run a collective under the text that all ranks must agree on, and translate its errors."""
        what = "" if array is None else f" of {array.dtype} {list(array.shape)}"
        text = f"{label}: {kind}{what}, call {next(self._calls)}"
        if self._closed:
            raise MisuseError(f"{text}: the session is closed: begin another one")
        try:
            return call(text)
        except MismatchError as error:
            raise MismatchError(
                f"the ranks do not agree on this collective: rank {self.rank} called {text}; another rank called something else, "
                "or has ended: all must make the same calls in the same order"
            ) from error
        except (ClosedCommunicatorError, PeerError) as error:
            if self._gone():
                raise PeerError(f"{text}: {self._gone()}") from error
            raise

    def _gone(self) -> str:
        if self._left:
            # A rank that leaves much later than the first one probably leaves because of it.
            first = min(self._left.values())
            names = [rank for rank, at in self._left.items() if at - first < LEAVING_GRACE_S / 2]
            return f"{'rank' if len(names) == 1 else 'ranks'} {', '.join(map(str, sorted(names)))} left before this was done"
        return self._end and f"the job has ended: {self._end}"

    def _on_left(self, worker_id: int, reason: str) -> None:
        del reason
        self._left.setdefault(worker_id, time.monotonic())
        self._close_soon()

    def _on_end(self, reason: str) -> None:
        self._end = self._end or reason
        self._close_soon()

    def _close_soon(self) -> None:
        if self._closer is None:
            self._closer = threading.Timer(LEAVING_GRACE_S, self._communicator.close)
            self._closer.daemon = True
            self._closer.start()


def check_reducible(dtype: npt.DTypeLike, op: Op) -> None:
    """Raise UnsupportedTypeError if `Session.allreduce` does not take the type."""
    name = np.dtype(dtype).name
    if name not in _WIDER and name not in _AS_IT_IS:
        raise UnsupportedTypeError(
            f"netsum reduces no {name}: convert the array, for instance to int64 or float32"
        )
    if name.startswith("complex") and op not in ("sum", "mean"):
        raise UnsupportedTypeError(f"{op} is not defined for {name}")


def begin(
    share: Share,
    rank: int,
    size: int,
    *,
    name: str,
    timeout_s: float = 300.0,
    options: Options | None = None,
) -> Session:
    """Join a new job with the ranks that share a text, and return the session.

    `name`: what the job's name begins with. `timeout_s`: for all to come, and for each collective. `options`: how the ranks
    reduce; by default as the environment says. Raises JoinError, at all ranks if the first one finds no switch.
    """
    options = options or Options.from_environment()
    invitation: dict[str, str] = {}
    if rank == 0:
        try:
            invitation = invite(size, name)
        except NetsumError as error:
            share(json.dumps({"error": str(error)}))
            raise
    invitation = json.loads(share(json.dumps(invitation)))
    if "error" in invitation:
        raise JoinError(f"rank 0: {invitation['error']}")
    refuse_elsewhere(invitation, rank, 0)
    membership = join(
        invitation["service"],
        job=invitation["job"],
        rank=rank,
        world_size=size,
        if_full="take less",
        timeout_s=timeout_s,
    )
    try:
        return Session(membership, timeout_s, options)
    except BaseException:
        membership.close()
        raise
