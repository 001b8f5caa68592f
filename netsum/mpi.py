"""An mpi4py communicator whose sums go through a switch: ``comm = netsum.mpi.wrap(MPI.COMM_WORLD)``, started by mpiexec alone.

Allreduce, Reduce_scatter, Reduce_scatter_block, Allgather and Bcast of NumPy arrays go through the switch where it takes
operation and type; all else is MPI's. Sums of floats are correctly rounded, unless `Options` or NETSUM_EXACT=0 say otherwise.
"""

import atexit
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from host_agent import session
from host_agent.codecs.accumulator import Accumulator
from host_agent.collectives import Op
from host_agent.errors import ArrayError, UnsupportedTypeError
from host_agent.session import Session, check_reducible
from host_agent.torch.options import Options as Options
from netsum.extras import install_command

try:
    from mpi4py import MPI
    from mpi4py.util import dtlib
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"netsum.mpi needs mpi4py: {install_command('mpi4py')}", name="mpi4py"
    ) from missing

Array = npt.NDArray[Any]

_OPS: Final[Sequence[tuple[Any, Op]]] = (
    (MPI.SUM, "sum"),
    (MPI.MIN, "min"),
    (MPI.MAX, "max"),
    (MPI.BOR, "bor"),
)
"""Pairs, as an MPI.Op has no hash."""
_OTHERS: Final = (
    "Allgatherv", "Alltoall", "Alltoallv", "Barrier", "Exscan", "Gather", "Gatherv", "Reduce", "Scan", "Scatter", "Scatterv",
    "allgather", "allreduce", "alltoall", "barrier", "bcast", "exscan", "gather", "reduce", "scan", "scatter",
)  # fmt: skip
"""Collectives that are MPI's, and counted."""
_MAKING: Final = ("Create", "Create_group", "Split", "Split_type")
_ENDING: Final = ("Free", "Disconnect")


def wrap(comm: MPI.Intracomm, *, timeout_s: float = 300.0, options: Options | None = None) -> "Comm":
    """Return a communicator with the ranks of another one, whose collectives go through a switch where it takes them.

    Communicators that are made of it, by Split, Dup and their like, are wrapped as well. Each takes slots of the switch with the
    first collective that goes there, and leaves its job when the program ends.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Its ranks send the name of the switch's controller over it.
    timeout_s : float
        How long a collective waits for the others.
    options : Options, optional
        How the ranks reduce; by default exactly, and else as the environment says.
    """
    if options is None:
        options = Options.from_environment()
        if "NETSUM_EXACT" not in os.environ and options.bits in ("auto", "full"):
            options = replace(options, exact=True)
    # Dup makes an object of this class without calling `__init__`.
    made: Comm = type("Comm", (Comm,), {"_timeout_s": timeout_s, "_options": options})(comm)
    return made


class Comm(MPI.Intracomm):
    """An `mpi4py.MPI.Intracomm`, made by `wrap`.

    Attributes
    ----------
    counts : collections.Counter
        Calls of this communicator, by pairs of their name and "switch" or "MPI".
    """

    _timeout_s: float
    _options: Options

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        """Number of calls, by their name and "switch" or "MPI"."""
        counts: Counter[tuple[str, str]] = self.__dict__.setdefault("_counts", Counter())
        return counts

    @property
    def session(self) -> Session:
        """The session with the switch; the first access, which all ranks make together, joins a job."""
        if "_session" not in self.__dict__:
            share = super().bcast
            self._session = session.begin(
                share, self.rank, self.size, name="mpi", timeout_s=self._timeout_s, options=self._options
            )
            atexit.register(self._session.close)
        return self._session

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> Any:
        """Reduce arrays over all ranks, also in place."""
        send, received = _flat(recvbuf if sendbuf is MPI.IN_PLACE else sendbuf), _flat(recvbuf)
        how = _switches(op, send, received)
        if how is None:
            return self._through_mpi("Allreduce", sendbuf, recvbuf, op)
        _check("Allreduce", send.size, send, received)
        self.counts["Allreduce", "switch"] += 1
        self.session.allreduce(send, how, label="Allreduce", out=received)
        return None

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Any = MPI.SUM) -> Any:
        """Reduce arrays of equal parts, and give each rank its part."""
        self._scatter("Reduce_scatter_block", sendbuf, recvbuf, op, (sendbuf, recvbuf, op))

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Any = MPI.SUM
    ) -> Any:
        """Reduce arrays, and give each rank its part; through the switch if no `recvcounts` are given or all are equal."""
        call = (sendbuf, recvbuf, recvcounts, op)
        if recvcounts is not None and len(set(recvcounts)) > 1:
            return self._through_mpi("Reduce_scatter", *call)
        # Without counts MPI gathers those of the ranks, which may differ.
        sizes = [0] if recvcounts is not None else super().allgather(getattr(_flat(recvbuf), "size", -1))
        if len(set(sizes)) > 1:
            return self._through_mpi("Reduce_scatter", *call)
        return self._scatter("Reduce_scatter", sendbuf, recvbuf, op, call)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> Any:
        """Gather arrays of equal size from all ranks."""
        received, send = _flat(recvbuf), _flat(sendbuf)
        if sendbuf is MPI.IN_PLACE and received is not None and received.size % self.size == 0:
            send = received.reshape(self.size, -1)[self.rank].copy()
        if send is None or received is None:
            return self._through_mpi("Allgather", sendbuf, recvbuf)
        _check("Allgather", send.size * self.size, send, received)
        self.counts["Allgather", "switch"] += 1
        received[...] = self.session.all_gather(send, label="Allgather").reshape(-1)
        return None

    def Bcast(self, buf: Any, root: int = 0) -> Any:
        """Send the root's array to all ranks."""
        array = _flat(buf)
        if array is None:
            return self._through_mpi("Bcast", buf, root)
        self.counts["Bcast", "switch"] += 1
        array[...] = self.session.broadcast(array, root, label="Bcast")
        return None

    def leave(self) -> None:
        """Leave the job of this communicator, as Free and Disconnect do; the other ranks leave at the same time."""
        if "_session" in self.__dict__:
            self.__dict__.pop("_session").close()

    def exact_sum(self, summands: npt.ArrayLike) -> Array:
        """Return the correctly rounded sum of all ranks' summands.

        It depends on the set of summands alone: not on which rank has which, nor on the number of ranks.

        Parameters
        ----------
        summands : array of float16, float32 or float64
            The first dimension counts this rank's summands, and may be 0; the others are alike at all ranks.

        Returns
        -------
        array
            Of the shape of one summand; a scalar of NumPy if that has none.
        """
        given = np.asarray(summands)
        if given.ndim == 0:
            raise ArrayError(
                "exact_sum: expected an array whose first dimension counts the summands, got a scalar"
            )
        total = Accumulator(given.shape[1:] or (1,), given.dtype)
        if given.ndim == 1:
            given = given[:, None]
        for each in given:
            total.add(each)
        self.counts["exact_sum", "switch"] += 1
        result = self.session.exact(total, label="exact_sum")
        return result[0] if np.ndim(summands) == 1 else result

    def _scatter(self, name: str, sendbuf: Any, recvbuf: Any, op: Any, call: tuple[Any, ...]) -> Any:
        send, received = _flat(sendbuf), _flat(recvbuf)
        how = _switches(op, send, received)
        if how is None:
            return self._through_mpi(name, *call)
        _check(name, send.size // self.size, send, received)
        self.counts[name, "switch"] += 1
        received[...] = self.session.reduce_scatter(send, how, label=name)
        return None

    def _through_mpi(self, name: str, *arguments: Any) -> Any:
        self.counts[name, "MPI"] += 1
        return getattr(super(), name)(*arguments)


def _as_mpi_does(name: str) -> Any:
    """Return a communicator's method that counts its calls, or wraps what it makes, or leaves the job first."""
    theirs = getattr(MPI.Intracomm, name)

    @wraps(theirs)
    def call(self: Comm, *arguments: Any, **named: Any) -> Any:
        if name in _ENDING:
            self.leave()
        elif name in _OTHERS:
            self.counts[name, "MPI"] += 1
        made = theirs(self, *arguments, **named)
        return type(self)(made) if name in _MAKING and made != MPI.COMM_NULL else made

    return call


for _name in (*_OTHERS, *_MAKING, *_ENDING):
    setattr(Comm, _name, _as_mpi_does(_name))


def _switches(op: Any, send: Any, received: Any) -> Op | None:
    """Return the switch's name of an operation if it reduces such arrays; all ranks decide alike, as their arrays are alike."""
    how = next((ours for theirs, ours in _OPS if op == theirs), None)
    if send is None or received is None or how is None or send.dtype.kind == "b":
        return None  # MPI's sum of booleans counts them.
    if how == "bor" and send.dtype.name not in ("int32", "int64"):
        return None
    with suppress(UnsupportedTypeError):
        check_reducible(send.dtype, how)
        return how
    return None


def _flat(buffer: Any) -> Any:
    """Return the elements of an array, or of a list of one with its MPI type; None for other buffers, which are MPI's."""
    array = buffer[0] if isinstance(buffer, list | tuple) and buffer else buffer
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous or array.dtype.kind not in "biufc":
        return None
    if array is not buffer:
        (*counts, datatype) = buffer[1:] or (None,)
        if not isinstance(datatype, MPI.Datatype) or not datatype.is_predefined:
            return None
        if counts not in ([], [array.size]) or dtlib.to_numpy_dtype(datatype) != array.dtype:
            return None
    return array.reshape(-1)


def _check(name: str, expected: int, send: Array, received: Array) -> None:
    if received.size != expected or received.dtype != send.dtype:
        raise ArrayError(
            f"{name}: expected a receive buffer of {expected} elements of {send.dtype}, got {received.size} of {received.dtype}"
        )
