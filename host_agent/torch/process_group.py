"""The process group: the c10d interface on top of the slots, and of an inner Gloo group for the other operations.

On the slots: all-reduce, reduce, reduce-scatter, broadcast, all-gather and barrier, in all their forms. Through Gloo:
transfers from one process to another (send, recv, all-to-all, gather, scatter), which gain nothing from a switch that
adds and multicasts; PRODUCT and BXOR; sparse tensors. All ranks choose alike, by the call, its operation and the data
type.
"""

import contextlib
import functools
import itertools
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.codecs.accumulator import Accumulator
from host_agent.collectives.exact import Exact
from host_agent.communicator import Communicator
from host_agent.errors import ArrayError, NetsumError
from host_agent.joining import Membership, NoSlotsError
from host_agent.torch.calls import cut, label_of, listed, nothing, operation_of, with_values
from host_agent.torch.failures import Failures, backend_error
from host_agent.torch.flight_recorder import described, recorder
from host_agent.torch.gloo_reductions import GlooError, GlooReductions, future_of
from host_agent.torch.incarnation import incarnation_of
from host_agent.torch.options import Options
from host_agent.torch.parts import Part, Parts
from host_agent.torch.reductions import kind_of, on_slots
from host_agent.torch.rendezvous import join
from host_agent.torch.resizing import adopted, announce
from host_agent.torch.slot_group import SlotGroup, failed
from host_agent.torch.sparse import reduce_sparse, sparse_on_slots
from host_agent.torch.staging import staged, write_staged
from host_agent.torch.subclasses import for_subclasses
from host_agent.torch.through_gloo import ThroughGloo
from host_agent.torch.tracing import untraced_methods
from host_agent.torch.work import NetsumWork

NAME: Final = "netsum"
_creation = threading.Lock()


@untraced_methods
@for_subclasses
class NetsumProcessGroup(ThroughGloo):
    """A process group whose collectives are done by a switch; made by ``init_process_group("netsum")`` and ``new_group``.

    `ranks`: the ranks in the world of the group's ranks. `name`: of the group, for the flight recorder.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        timeout: timedelta,
        membership: Membership,
        ranks: Sequence[int],
        group_options: Options | None = None,
        name: str = "0",
    ) -> None:
        super().__init__(rank, size)
        self._rank, self._size, self._timeout, self._ranks = rank, size, timeout, ranks
        self._calls = itertools.count()
        self._recorded = recorder.add_group(name, ranks, rank, timeout.total_seconds())
        self._failures = Failures(store, rank, ranks, timeout.total_seconds())
        self._slots = SlotGroup(
            membership, timeout.total_seconds(), self._failures, self._without_slots, group_options, size
        )
        self._store = store
        self._address = membership.bind[0]
        gloo = self._new_gloo(store, "gloo/")
        # C++ code calls the base class's methods for operations that are not overridden here; they look the backend up.
        for device in ("cpu", "cuda"):
            self._register_backend(torch.device(device), dist.ProcessGroup.BackendType.GLOO, gloo)
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._gloo: Any = gloo
        self._parts = Parts(self._slots, gloo, rank, size)

    def hand_over(self) -> tuple[Membership, Options]:
        """End the group's collectives, and return its membership and how it reduces, for the group that follows it."""
        return self._slots.hand_over(), self._slots.options

    @property
    def store(self) -> dist.Store:
        """The store where the group's ranks met."""
        return self._store

    def get_group_store(self) -> dist.Store:
        """Return the store where its ranks met."""
        return self._store

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> "NetsumProcessGroup | None":
        """Make a group of some ranks of this one, which all of them call; return None at other ranks.

        `ranks`: of this group. `opts`: `Options` of the new group; None: those of this one. `group_name`: differs from those of
        other groups in the same store.
        """
        if self._rank not in ranks:
            return None
        name = group_name or f"{self._recorded.name}/split {' '.join(map(str, ranks))}"
        made = create(
            SimpleNamespace(
                store=dist.PrefixStore(f"{name}/", self._store),
                group_rank=list(ranks).index(self._rank),
                group_size=len(ranks),
                timeout=timeout or self._timeout,
                global_ranks_in_group=[self._ranks[each] for each in ranks],
                group_id=name,
            ),
            opts if isinstance(opts, Options) else self._slots.options,
        )
        made._set_group_name(name)
        made._set_group_desc(group_desc or "undefined")
        return made

    @property
    def supports_reconfigure(self) -> bool:
        """Whether PyTorch can give the group other ranks; its handle would be that of the inner Gloo group."""
        return False

    def reconfigure(self, *_: Any) -> Any:
        """Refuse."""
        raise NotImplementedError("groups of netsum change their ranks by netsum.torch.resize()")

    get_reconfigure_handle = reconfigure

    @property
    def newcomers(self) -> int:
        """How many ranks wait to be added (`netsum.torch.resize`)."""
        return self._slots.newcomers

    def start(self) -> None:
        """Take slots of the switch now, rather than with the first collective.

        Raises JoinError if the job of this group did not start.
        """
        self._slots.start()

    @property
    def communicator(self) -> Communicator:
        """The worker of this group: its statistics, and its id, which is the rank in the group."""
        return self._slots.communicator

    @property
    def exact(self) -> bool:
        """Whether sums and means of floats are correctly rounded."""
        return self._slots.options.exact

    @property
    def private(self) -> bool:
        """Whether contributions and results are masked."""
        return bool(self._slots.options.private)

    def getBackendName(self) -> str:
        """Return "netsum"."""
        return NAME

    name = getBackendName

    # Reductions

    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Reduce tensors in place, at every rank alike."""
        tensors = listed(tensors)
        operation = operation_of(opts)
        kind = kind_of(operation)
        label, called = label_of("all_reduce", kind, *tensors), ("all_reduce", tensors, tensors)
        if all(sparse_on_slots(tensor, kind) for tensor in tensors):
            sums = (reduce_sparse(self._slots, each, label) for each in tensors)
            return self._work(label, tensors, sums, called)
        if any(tensor.is_sparse for tensor in tensors):
            how = with_values(dist.AllreduceOptions(), reduceOp=operation)

            def begin(tensor: Tensor) -> Future[Any]:
                return future_of(self._gloo.allreduce([tensor], how))

            sums = ((functools.partial(begin, each), nothing) for each in tensors)
            return self._work(label, tensors, sums, called, through_gloo=True)
        parts = (self._parts.reduce(each, each, operation, "all_reduce") for each in tensors)
        through_gloo = any(not on_slots(each.dtype, kind) for each in tensors)
        return self._work(label, tensors, parts, called, opts, through_gloo=through_gloo)

    def exact_mean(self, total: Accumulator, output: Tensor) -> Any:
        """Write the mean of all ranks' accumulators, rounded once, into a tensor."""
        mean = np.empty(total.shape, total.dtype)
        label = label_of("exact mean", "", output)
        exact: Exact = "bfloat16" if output.dtype == torch.bfloat16 else True
        begin = functools.partial(self._slots.exact_mean, total, mean, exact, label)
        parts = [(begin, lambda: write_staged(output, torch.from_numpy(mean)))]
        return self._work(label, [output], parts, ("all_reduce", [output], [output]))

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None) -> Any:
        """Reduce a tensor; the result goes to the root alone."""
        if isinstance(opts, int):
            opts = with_values(
                dist.ReduceOptions(), rootRank=opts, reduceOp=dist.ReduceOp.SUM if op is None else op
            )
        tensors = listed(tensors)
        operation, root = operation_of(opts), opts.rootRank
        kind = kind_of(operation)
        label, called = f"reduce to rank {self._ranks[root]}", ("reduce", tensors, tensors)
        parts = (
            self._parts.reduce(each, each if self._rank == root else None, operation, label, root)
            for each in tensors
        )
        through_gloo = any(not on_slots(each.dtype, kind) for each in tensors)
        return self._work(
            label_of(label, kind, *tensors), tensors, parts, called, opts, through_gloo=through_gloo
        )

    def reduce_scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None
    ) -> Any:
        """Reduce a list of tensors, one for each rank."""
        outputs = listed(outputs)
        inputs = [inputs] if isinstance(inputs[0], Tensor) else inputs
        return self._reduce_scatter(outputs, lambda: inputs, opts)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        """Reduce a tensor; each rank gets its part of it."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce several tensors; each rank gets its part of each."""

        def cut_up() -> list[list[Tensor]]:
            wholes = (staged(each, read=True, write=False).tensor for each in inputs)
            return [cut(whole, piece, self._size) for whole, piece in zip(wholes, outputs, strict=True)]

        return self._reduce_scatter(outputs, cut_up, opts)

    def _reduce_scatter(
        self, outputs: list[Tensor], pieces_of: Callable[[], Sequence[Sequence[Tensor]]], opts: Any
    ) -> Any:
        operation = operation_of(opts)
        kind = kind_of(operation)

        def parts() -> Iterator[Part]:
            for output, pieces in zip(outputs, pieces_of(), strict=True):
                self._parts.check_pieces("reduce_scatter", pieces)
                for rank, given in enumerate(pieces):
                    # Results are written while later pieces are still read.
                    piece = staged(given, read=True, write=False, apart_from=outputs).tensor
                    target = output if rank == self._rank else None
                    yield self._parts.reduce(piece, target, operation, "reduce_scatter", rank)

        label, called = label_of("reduce_scatter", kind, *outputs), ("reduce_scatter", outputs, outputs)
        through_gloo = any(not on_slots(each.dtype, kind) for each in outputs)
        return self._work(label, outputs, parts(), called, opts, through_gloo=through_gloo)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # From one rank to all ranks

    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Overwrite tensors with the root's."""
        tensors = listed(tensors)
        root = 0 if opts is None else opts if isinstance(opts, int) else opts.rootRank
        label = f"broadcast from rank {self._ranks[root]}"
        parts = (self._parts.broadcast(tensor, root, label) for tensor in tensors)
        called = "broadcast", tensors, tensors
        return self._work(label_of(label, "", *tensors), tensors, parts, called, opts)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Gather a tensor of every rank at every rank."""
        outputs = [outputs] if isinstance(outputs[0], Tensor) else outputs
        inputs = listed(inputs)
        written = [piece for pieces in outputs for piece in pieces]

        def parts() -> Iterator[Part]:
            for pieces, own in zip(outputs, inputs, strict=True):
                self._parts.check_pieces("all_gather", pieces)
                if pieces[self._rank].numel() != own.numel() or any(
                    each.dtype != own.dtype for each in pieces
                ):
                    raise ArrayError(
                        f"all_gather: output {self._rank} must be like the input, {own.dtype} {list(own.shape)}, and the others "
                        f"of its type, not {', '.join(f'{each.dtype} {list(each.shape)}' for each in pieces)}"
                    )
                yield self._parts.gather_in_list(own, pieces)

        value = outputs[0] if len(outputs) == 1 else outputs
        called = "all_gather", inputs, inputs
        return self._work(label_of("all_gather", "", *inputs), written, parts(), called, opts, value)

    def allgather_coalesced(self, output_lists: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather several tensors of every rank; `output_lists` has one list for each rank."""
        by_input = [list(pieces) for pieces in zip(*output_lists, strict=True)]
        return self.allgather(by_input, inputs, opts)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        """Gather a tensor of every rank in one tensor."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather several tensors of every rank, each in one tensor."""
        called = "all_gather", inputs, inputs
        parts = (self._parts.gather(piece, whole) for whole, piece in zip(outputs, inputs, strict=True))
        return self._work(label_of("all_gather", "", *inputs), outputs, parts, called, opts)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Any:
        """Wait for all ranks."""
        given = timedelta(0) if opts is None else opts.timeout  # negative if none was given
        parts = [(functools.partial(self._slots.barrier, "barrier"), nothing)]
        opts = opts if given <= timedelta(0) else None
        return self._work("barrier", [], parts, ("barrier", [], []), opts, patience=given)

    def set_timeout(self, timeout: timedelta) -> None:
        """Refuse: collectives on the slots keep the timeout that the group was made with."""
        raise NotImplementedError(
            f"a netsum group keeps its timeout of {self._timeout}: make a new group with another"
        )

    def merge_remote_group(self, *arguments: Any, **options: Any) -> Any:
        """Refuse: a switch's job takes up single workers, not groups."""
        raise NotImplementedError(
            "netsum groups cannot be merged: make a new group of all ranks, or use netsum.torch.resize"
        )

    def shutdown(self) -> None:
        """Leave the job."""
        self._slots.close()

    abort = shutdown

    # How it is done

    def _new_gloo(self, store: dist.Store, name: str) -> Any:
        """Connect the ranks from the addresses that the controller knows: a host's name may resolve to its loopback."""
        options: Any = dist.ProcessGroupGloo._Options()
        interfaces = list(filter(None, os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")))
        options._devices = [dist.ProcessGroupGloo.create_device(interface=each) for each in interfaces] or [
            dist.ProcessGroupGloo.create_device(hostname=self._address)
        ]
        options._threads = 2 * len(options._devices)  # As PyTorch does.
        options._timeout = self._timeout
        return dist.ProcessGroupGloo(dist.PrefixStore(name, store), self._rank, self._size, options)

    def _without_slots(self, refusal: NoSlotsError) -> GlooReductions:
        """Connect the ranks through Gloo once more, for collectives that begin in an order of their own."""
        if self._rank == 0:
            warnings.warn(f"{refusal}. This process group reduces through Gloo instead.", stacklevel=2)
        store = self._store
        with contextlib.suppress(RuntimeError):  # Another thread may be waiting for something on the group's.
            store = store.clone()
        return GlooReductions(self._new_gloo(store, "without slots/"), self._size)

    def _work(
        self,
        what: str,
        outputs: Sequence[Tensor],
        parts: Iterable[Part],
        called: tuple[str, Sequence[Tensor], Sequence[Tensor]],
        opts: Any = None,
        value: Any = None,
        patience: timedelta = timedelta(0),
        through_gloo: bool = False,
    ) -> NetsumWork:
        """Begin the parts of a call, once all are planned, and return its work.

        `parts`: planned as they are iterated. `called`: the operation, its inputs and its outputs of one rank. `opts`: say
        whether the caller waits at once, and so progresses the collective itself.
        """
        number = next(self._calls)
        call = f"{what}, call {number} of this group"
        waits = not (through_gloo or getattr(opts, "asyncOp", True))
        with self._slots.driven_by_caller() if waits else contextlib.nullcontext():
            try:
                broken = self._failures.broken() if through_gloo else None
                planned = list(parts) if broken is None else [(lambda: failed(broken), nothing)]
                futures = [begin() for begin, _ in planned]
            except Exception as refusal:
                self._refuse(what, number, f"{call}, refused: {refusal}")
                if isinstance(refusal, RuntimeError) and not isinstance(refusal, NetsumError):
                    raise backend_error(call, str(refusal), refusal) from refusal
                raise

            def finish() -> None:
                for _, finish_one in planned:
                    finish_one()

            operation, given, taken = called
            # If every rank has a part of one side, the recorded shapes are those of the whole side.
            scatters, gathers = (
                self._size if operation == each else 1 for each in ("reduce_scatter", "all_gather")
            )
            shapes = described(given, scatters), described(taken, gathers)
            record = recorder.begin(self._recorded, number, operation, *shapes, through_gloo)
            refused = functools.partial(self._failures.refusal, number) if through_gloo else nothing
            value = outputs if value is None else value

            def ended(error: BaseException | None) -> None:
                if error is not None and isinstance(error.__cause__, GlooError):
                    self._failures.note_refusal(number, f"{call}, failed: {error.__cause__}")
                record.ended(error)

            def made() -> NetsumWork:
                work = NetsumWork(
                    call, value, futures, finish, self._failures.explain, patience, ended, refused
                )
                for future in futures if waits else ():
                    self._slots.drive(future)
                return work

            if not torch.autograd._profiler_enabled():
                return made()
            size = sum(each.numel() * each.element_size() for each in outputs)
            with torch.profiler.record_function(f"netsum:{what}, {size} bytes") as span:
                work = made()
                span._call_end_callbacks_on_future(work.get_future())  # the range ends with the collective
            return work

    def _refuse(self, what: str, number: int, refusal: str) -> None:
        """Let the other ranks hear that this one does not take part in a call, unless they refuse the same."""
        self._failures.note_refusal(number, refusal)
        # On the slots, a meeting that the others do not join; those who wait there for something else fail at once.
        meeting = self._slots.barrier(f"{what}, refused")
        NetsumWork(refusal, [], [meeting], explain=self._failures.explain)


def create(options: Any, backend_options: Any = None) -> NetsumProcessGroup:
    """Make a process group; torch calls it at every rank that is in the group."""
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    ranks = options.global_ranks_in_group or range(size)
    places = max(size, dist.get_world_size() if dist.is_initialized() else 0)
    group = options.group_id or "0"
    how = backend_options if isinstance(backend_options, Options) else Options.from_environment()
    with _creation:  # The first group of a process may start a service that the next group shares.
        incarnation = incarnation_of(not options.global_ranks_in_group, bool(adopted))
        store = dist.PrefixStore(f"netsum/{incarnation}/", options.store)
        membership = adopted.pop() if adopted and not options.global_ranks_in_group else None
        if membership is None:
            membership = join(store, rank, ranks, places=places, group=group, timeout=timeout, start=False)
        made = NetsumProcessGroup(store, rank, size, timeout, membership, ranks, how, group)
        # Other groups may never reduce anything: these take slots with their first collective.
        if not options.global_ranks_in_group:
            made.start()
            if rank == 0:
                announce(store, membership)
        return made
