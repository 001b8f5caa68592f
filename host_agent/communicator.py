"""All-reduce, reduce-scatter, all-gather, broadcast and barrier over NumPy arrays."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeVar

import numpy.typing as npt

from host_agent.activity import Activity, activity_of
from host_agent.claims import claim, unclaim
from host_agent.codecs import bitmap
from host_agent.codecs.accumulator import Accumulator
from host_agent.codecs.packed import Bits
from host_agent.codecs.table import load_all
from host_agent.collectives import (
    AllGatherRequest,
    AllReduceRequest,
    BarrierRequest,
    BroadcastRequest,
    Offer,
    OnOverflow,
    Op,
    ReduceScatterRequest,
    Request,
    RoundRequest,
)
from host_agent.collectives.allreduce import Rounding
from host_agent.collectives.collective import check_root
from host_agent.collectives.exact import Exact, ExactRequest
from host_agent.collectives.rows import AllReduceRowsRequest, Rows
from host_agent.collectives.scatter_gather import refuse_quorum
from host_agent.collectives.sparse import Sparse
from host_agent.compilation_news import news
from host_agent.control import Control
from host_agent.errors import MisuseError
from host_agent.forks import OfOneProcess
from host_agent.lifecycle import Lifecycle
from host_agent.progress import Progress
from host_agent.protocol.core import WorkerCore
from host_agent.rounds import AHEAD, Round, Rounds
from host_agent.statistics import Statistics
from host_agent.transport import in_place_link, shared_memory
from host_agent.transport.link import Link
from host_agent.transport.shared_memory import link_to
from host_agent.transport.udp import Bind, UdpLink
from host_agent.verification import checked
from host_agent.verification.trust import Trust
from host_agent.wire import Admission
from netsum_common.closing import Closing

PLAIN = Trust()
T = TypeVar("T")
Array = npt.NDArray[Any]
_PLAIN = ("raise", "auto", "full", "nearest", 0)
"""Defaults of `on_overflow`, `sparse`, `bits`, `rounding` and `seed`."""


class ArrayCompression(Protocol):
    """Lossy reductions of arrays over a communicator: `netsum.Compression`, which needs PyTorch."""

    def allreduce(
        self, communicator: Communicator, array: npt.ArrayLike, op: Literal["sum", "mean"], label: str
    ) -> Array:
        """Return the reduced array, the same at all workers."""


class Communicator(Closing, OfOneProcess):
    """One worker's membership in one epoch of a job.

    All workers of the job must call the same collectives in the same order, with the same operation, data type and
    number of elements; if they do not, they get `MismatchError`, not a sum. Results are bit-identical on all workers.
    Threads that share a communicator must agree on the order of their calls themselves.

    Every collective takes a `label`: text that the workers must agree on too, such as the shape, or which call of the
    program it is. Errors name the collective by it.

    Each collective has a form that returns at once, with a `concurrent.futures.Future`: `result(timeout)` waits,
    `done()` asks, `add_done_callback` chains. The first such call starts a thread, so the collective progresses whatever
    the caller does. Several can be under way; they are done in the order of the calls. Until one is done, its input may
    not be changed nor its output used. It cannot be cancelled, as the other workers count on it.

    A child that this process forks cannot use it.

    Parameters
    ----------
    admission : Admission
        From the controller. Each serves one communicator, once.
    bind : (str, int) or socket.socket
        Local IPv4 address and UDP port, as admitted; ("", 0) lets the system choose both. Or a UDP socket that is bound there,
        which is closed with the communicator.
    timeout_s : float
        A collective fails if none of its chunks completes for that long.
    trust : Trust
        How results are checked; by default they are not.

    Raises
    ------
    MisuseError
        If the address cannot be bound.
    SecretError
        If the secret cannot be used.
    UsedAdmissionError
        If a communicator of this process has used the admission before.

    Examples
    --------
    >>> with Communicator(admission, bind=("127.0.1.1", 28300)) as comm:  # doctest: +SKIP
    ...     total = comm.allreduce(gradients)
    """

    def __init__(
        self, admission: Admission, *, bind: Bind = ("", 0), timeout_s: float = 30.0, trust: Trust = PLAIN
    ) -> None:
        self._verifier = trust.verifier()
        if not 0.001 <= timeout_s <= 1e6:
            raise MisuseError(f"timeout_s must be between 0.001 and 1,000,000 seconds, got {timeout_s}")
        core = WorkerCore(admission, int(timeout_s * 1e9))
        claim(admission)  # First, as a second link would take what comes for the one in use.
        try:
            self._link = link_to(core, bind)
        except MisuseError:
            unclaim(admission)
            raise
        # Compiles or loads machine code now rather than while the others wait for the first collective.
        _load(core, self._link)
        self._verifier.load()
        self._progress = Progress(core, self._link)
        self.control = Control(self._progress, admission)  # For the membership and for process groups.
        self._order = threading.Lock()  # held while a collective gets its place in the order
        self._sequence = 0
        super().__init__()

    @property
    def admission(self) -> Admission:
        """The admission of the next collective's epoch."""
        return self.control.admission

    @property
    def worker_id(self) -> int:
        """Id of this worker, 0…num_workers − 1."""
        return self.admission.rank

    @property
    def num_workers(self) -> int:
        """Number of the job's workers."""
        return self.admission.world_size

    @property
    def lifecycle(self) -> Lifecycle:
        """Lifecycle state and, if failed, the error."""
        return self._progress.lifecycle

    @property
    def address(self) -> tuple[str, int]:
        """Local address and UDP port."""
        return self._link.address

    @property
    def link(self) -> str:
        """The way to the switch: "program", "memory", "udp", or "agreeing" until the workers have agreed."""
        return self._link.kind

    @property
    def path_errors(self) -> str:
        """Socket errors since the link was last idle; empty if there are none."""
        return self._link.trouble()

    @property
    def stats(self) -> Statistics:
        """Statistics of the last collective."""
        return self._progress.last

    @property
    def total_stats(self) -> Statistics:
        """Cumulative statistics; subtract two snapshots for an interval."""
        return replace(self._progress.total)

    def allreduce(
        self,
        array: npt.ArrayLike | Accumulator,
        op: Op = "sum",
        *,
        out: Array | None = None,
        on_overflow: OnOverflow = "raise",
        sparse: Sparse = "auto",
        bits: Bits = "full",
        rounding: Rounding = "nearest",
        seed: int = 0,
        compression: ArrayCompression | None = None,
        exact: Exact = False,
        verify: bool | None = None,
        label: str = "",
    ) -> Array:
        """Reduce an array over all workers, element by element.

        Parameters
        ----------
        array : float32, float64, float16, int32 or int64 array
            Any shape and memory layout; the same shape on all workers.
        op : {"sum", "mean", "min", "max", "bor"}
            "sum" and "mean" of floats are computed in blocks of as many elements as a packet has lanes, with
            30 − ceil(log2 n) bits below the largest magnitude of the block: more than float32 needs for the large
            elements, less for elements far below them, and less than float64 holds. float16 is summed as float32
            and rounded once. Sums of integers are exact. "min" and "max" are exact; NaN wins. "bor" (bitwise or)
            takes integers, "mean" takes floats.
        out : array, optional
            Where the result goes; may be `array` itself.
        on_overflow : {"raise", "saturate"}
            What to do if a sum does not fit the integer type: raise at every worker alike, or return the nearest value
            that fits.
        sparse : {"auto", "always", "never"}
            Whether blocks, of as many elements as a packet holds, that are zero at every worker are left out. The
            result has the same bits either way. "auto" does so for arrays of 1 MiB and more, where zero is neutral to
            the operation: "sum", "mean" and "bor".
        bits : {"full", 16, 8, 4, 2}
            Sums and means of float32 and float16 with this many bits an element, those for the carries of the sum
            included, two to eight and more elements in a lane; 2 means −1, 0 and 1 times the block's largest magnitude.
            Each worker's part is off by at most M / (2 * levels), where M is the block's largest magnitude over all workers
            (rounded up to 8 significant bits) and levels = (2^(bits - 1) - 1) // n, or 1 for 2 bits.
        rounding : {"nearest", "stochastic"}
            With fewer bits: "stochastic" is unbiased, and off by twice as much at most.
        seed : int
            Of stochastic rounding, not negative; the same seeds and calls give the same bits.
        compression : netsum.Compression, optional
            Send less, and lose something on purpose: sums and means of floats (docs/compression.md; needs PyTorch). The
            result has the same bits at all workers. `sparse`, `bits`, `rounding` and `seed` do not go with it: a
            compressor has options of its own. Its state is kept by `label`.
        exact : {False, True, "bfloat16"}
            The correctly rounded sum or mean of floats, to nearest, ties to even: it depends on the set of summands alone.
            `array` may then be a list of this worker's summands of one shape and type, or an `Accumulator` of them; a mean
            divides by the number of all workers' summands. "bfloat16" rounds the result of float32 to that type.
            `on_overflow`, `sparse`, `bits`, `rounding`, `seed` and `compression` do not go with it.
        verify : bool, optional
            Check the result (docs/security.md); by default as the communicator's `trust` says.
        label : str
            Text that all workers must agree on.

        Returns
        -------
        array
            `out`, or a new array of the same shape and type.

        Raises
        ------
        UnsupportedTypeError
            (a TypeError) for other types and pairs of type and operation.
        SumOverflowError
            See `on_overflow`. The communicator stays usable.
        VerificationError
            The result failed its check at this worker. The communicator stays usable.
        MissingWorkersError, SwitchSilentError, ResultsLostError
            (TimeoutErrors) if nothing completed for `timeout_s`. The communicator is broken then.
        MismatchError
            If the workers called different collectives. The communicator is broken then.
        """
        if exact and compression is not None:
            raise MisuseError("exact=True cannot be combined with compression, which is lossy")
        if compression is not None:
            if (sparse, bits, rounding, seed) != ("auto", "full", "nearest", 0):
                raise MisuseError(
                    "sparse, bits, rounding and seed cannot be combined with compression: set the compressor's options"
                )
            if verify is not None:
                raise MisuseError("verify does not go with compression: set it in the communicator's trust")
            # An operation that it does not take is refused there.
            reduced = compression.allreduce(self, array, op, label)  # type: ignore[arg-type]
            if out is None:
                return reduced
            out[...] = reduced
            return out
        request = AllReduceRequest(array, op, out, on_overflow, sparse, bits, rounding, seed)
        return self._run(_exact_or_not(request, exact), label, verify)

    def allreduce_async(
        self,
        array: npt.ArrayLike | Accumulator,
        op: Op = "sum",
        *,
        out: Array | None = None,
        on_overflow: OnOverflow = "raise",
        sparse: Sparse = "auto",
        bits: Bits = "full",
        rounding: Rounding = "nearest",
        seed: int = 0,
        exact: Exact = False,
        root: int | None = None,
        verify: bool | None = None,
        label: str = "",
    ) -> Future[Array]:
        """Begin an `allreduce` and return a future of its result.

        `root`: the rank that needs the result, alike at all workers. To the others the switch need not send it, so what their
        futures and `out` hold is of no use; sums of integers and exact ones come to all workers all the same.
        """
        if root is not None:
            refuse_quorum(self.admission, "a reduction to one rank")
            check_root(root, self.admission.world_size, "allreduce_async")
        request = AllReduceRequest(array, op, out, on_overflow, sparse, bits, rounding, seed, root=root)
        return self._begin(_exact_or_not(request, exact), label, verify)

    def reduce_scatter(
        self,
        array: npt.ArrayLike,
        op: Op = "sum",
        *,
        out: Array | None = None,
        on_overflow: OnOverflow = "raise",
        sparse: Sparse = "auto",
        label: str = "",
    ) -> Array:
        """Reduce an array over all workers; each gets its part of the result.

        Parameters
        ----------
        array : array
            Its first dimension is a multiple of the number of workers, and is divided among them in the order of their ranks.
        op, on_overflow, sparse, label
            As for `allreduce`.
        out : array, optional
            Where this worker's part goes.

        Returns
        -------
        array
            `out`, or a new array of the same type; the first dimension is divided by the number of workers.

        Raises
        ------
        ArrayError
            The array cannot be divided.
        MisuseError
            The job has a quorum.
        PeerError, UnsupportedTypeError, SumOverflowError
            As for `allreduce`.
        """
        return self._run(ReduceScatterRequest(array, op, out, on_overflow, sparse), label)

    def reduce_scatter_async(
        self,
        array: npt.ArrayLike,
        op: Op = "sum",
        *,
        out: Array | None = None,
        on_overflow: OnOverflow = "raise",
        sparse: Sparse = "auto",
        label: str = "",
    ) -> Future[Array]:
        """Begin a `reduce_scatter` and return a future of its result."""
        return self._begin(ReduceScatterRequest(array, op, out, on_overflow, sparse), label)

    def all_gather(self, array: npt.ArrayLike, *, out: Array | None = None, label: str = "") -> Array:
        """Return the arrays of all workers, bit for bit, in the order of their ranks.

        Parameters
        ----------
        array : array without Python objects
            Of the same shape and type at all workers. May be this worker's part of `out`.
        out : array, optional
            Where the result goes: one dimension more in front, as large as the number of workers.
        label : str
            Text that all workers must agree on.

        Raises
        ------
        MisuseError
            The job has a quorum.
        PeerError, UnsupportedTypeError, ArrayError
            As for `allreduce`; `out` does not fit.
        """
        return self._run(AllGatherRequest(array, out), label)

    def all_gather_async(
        self, array: npt.ArrayLike, *, out: Array | None = None, label: str = ""
    ) -> Future[Array]:
        """Begin an `all_gather` and return a future of its result."""
        return self._begin(AllGatherRequest(array, out), label)

    def allreduce_rows(
        self,
        rows: Rows,
        row_count: int,
        op: Op = "sum",
        *,
        on_overflow: OnOverflow = "raise",
        label: str = "",
    ) -> Rows:
        """Reduce arrays of which each worker has some rows, and zeros elsewhere.

        Parameters
        ----------
        rows : Rows
            This worker's: numbers, ascending and each once, and values of the types that `allreduce` takes.
        row_count : int
            Of the whole array, at all workers.
        op : {"sum", "mean"}
            As for `allreduce`.
        on_overflow : {"raise", "saturate"}
            As for `allreduce`.
        label : str
            Text that all workers must agree on.

        Returns
        -------
        Rows
            The rows that any worker has.

        Raises
        ------
        ArrayError
            Numbers and values do not fit together.
        PeerError, UnsupportedTypeError, SumOverflowError
            As for `allreduce`.
        """
        return self._run(AllReduceRowsRequest(rows, row_count, op, on_overflow), label)

    def allreduce_rows_async(
        self,
        rows: Rows,
        row_count: int,
        op: Op = "sum",
        *,
        on_overflow: OnOverflow = "raise",
        label: str = "",
    ) -> Future[Rows]:
        """Begin an `allreduce_rows` and return a future of its result."""
        return self._begin(AllReduceRowsRequest(rows, row_count, op, on_overflow), label)

    def begin_round(
        self, shape: tuple[int, ...], dtype: npt.DTypeLike, op: Op = "mean", *, label: str = ""
    ) -> Round:
        """Begin an `allreduce` over the workers that are ready first; the job must have been created with a quorum.

        The round ends when as many workers as the quorum have offered an array, whether this worker has or not: it
        follows the others. All workers must begin the same rounds, as with any collective, and before they
        compute their offers; the deadline counts from there.

        Parameters
        ----------
        shape, dtype
            Of the arrays; the same at all workers.
        op : {"sum", "mean", "min", "max", "bor"}
            As for `allreduce`. "mean" divides by the number of arrays added.
        label : str
            Text that all workers must agree on.

        Returns
        -------
        Round
            `offer(array)` hands in this worker's array, `result()` waits for the end.

        Raises
        ------
        MisuseError
            The job has no quorum.
        UnsupportedTypeError
            As for `allreduce`.
        """
        offer = Offer(shape, dtype)
        return Round(offer, self._begin(RoundRequest(offer, op), label), self._progress.wake)

    def rounds(
        self,
        count: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        op: Op = "mean",
        *,
        ahead: int = AHEAD,
    ) -> Rounds:
        """Run `count` rounds one after the other, with or without this worker.

        Parameters
        ----------
        count : int
            How many; the same at all workers.
        shape, dtype, op
            As for `begin_round`.
        ahead : int
            Limit on kept results that this worker has not taken. If it falls behind further, the others wait.

        Returns
        -------
        Rounds
            `offer(array)` hands in an array for the first round whose result was not taken; `take()` returns the
            results that have come.
        """
        return Rounds(lambda: self.begin_round(shape, dtype, op), count, ahead)

    def broadcast(
        self, array: npt.ArrayLike, root: int, *, out: Array | None = None, label: str = ""
    ) -> Array:
        """Return the root's array at every worker, bit for bit.

        Parameters
        ----------
        array : array without Python objects
            On the root, what to send; elsewhere only its shape and type matter, which must be the root's.
        root : int
            Worker id of the sender.
        out : array, optional
            Where the result goes; may be `array` itself.
        label : str
            Text that all workers must agree on.

        Raises
        ------
        PeerError, UnsupportedTypeError
            As for `allreduce`.
        """
        return self._run(BroadcastRequest(array, root, out), label)

    def broadcast_async(
        self, array: npt.ArrayLike, root: int, *, out: Array | None = None, label: str = ""
    ) -> Future[Array]:
        """Begin a `broadcast` and return a future of its result."""
        return self._begin(BroadcastRequest(array, root, out), label)

    def barrier(self, *, label: str = "") -> None:
        """Return when all workers have called it.

        Parameters
        ----------
        label : str
            Text that all workers must agree on.

        Raises
        ------
        PeerError
            As for `allreduce`.
        """
        self._run(BarrierRequest(), label)

    def barrier_async(self, *, label: str = "") -> Future[None]:
        """Begin a `barrier` and return a future that is done when all workers have."""
        return self._begin(BarrierRequest(), label)

    def activity(self) -> Activity:
        """Return counters and the chunk that is waited for, also in the middle of a collective; from any thread."""
        return activity_of(self._progress.core)

    def close(self) -> None:
        """Close the socket. Collectives that are not done fail with `ClosedCommunicatorError`."""
        self._progress.close()

    def close_in_child(self) -> None:
        """Release, in a forked child, the parent's thread and locks; the link refuses further collectives."""
        self._order = threading.Lock()
        self._progress.close_in_child()

    def _run(self, request: Request[T], label: str, verify: bool | None = None) -> T:
        """Submit a request, and return its result."""
        with self._progress.driven_by_caller():
            return self._progress.wait(self._submit(request, label, verify))

    def _begin(self, request: Request[T], label: str, verify: bool | None = None) -> Future[T]:
        """Submit a request, which a thread of its own progresses."""
        self._progress.start_thread()
        return self._submit(request, label, verify)

    def _submit(self, request: Request[T], label: str, verify: bool | None) -> Future[T]:
        """Give a request its place in the order."""
        with self._order:
            wrapped = self._verifier.wrap(request, verify, self.num_workers)
            collective = wrapped.plan(self.admission, self._sequence)
            if label:
                collective.agree_on(label, self._sequence)
            future = self._progress.submit(collective)
            self._sequence += 1
        return future


def compile_ahead() -> None:
    """Compile the worker's machine code to disk, so that processes started afterwards need not.

    Takes some tens of seconds after an installation or a change of it, well under a second otherwise.
    """
    core = WorkerCore(Admission(1, 0, 1, 0, 1, 1, 64), timeout_ns=1)
    link = UdpLink(core, ("", 0))
    _load(core, link)
    shared_memory.load(core)
    in_place_link.load(core)
    checked.load()
    link.close()


def _exact_or_not(request: AllReduceRequest, exact: Exact) -> Request[Array]:
    """Return the request of an all-reduce, exact or not."""
    if exact is False:
        return request
    if request.approximation not in (_PLAIN, ("raise", "never", *_PLAIN[2:])):
        raise MisuseError("exact=True cannot be combined with on_overflow, sparse, bits, rounding or seed")
    return ExactRequest(request.array, request.op, request.out, exact)


def _load(core: WorkerCore, link: Link) -> None:
    """Compile a worker's code, or load it from the cache."""
    load_all()
    core.load()
    bitmap.load()
    link.exchange(0.0)
    news.end()
