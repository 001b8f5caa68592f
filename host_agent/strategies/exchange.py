"""Collectives and messages of strategies over a process group of torch.distributed, counted."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.compression.exchange import TorchExchange, run
from host_agent.compression.reducer import CompressedRound, Reducer
from host_agent.compression.registry import compressor_of, memory_of


class Traffic:
    """Bytes that one worker sent and received, without packet headers and without additions of a back end.

    An all-reduce counts as the tensor once in each direction, as on a worker's link to a switch that adds.
    """

    def __init__(self) -> None:
        # bytes_sent, bytes_received: payload.
        self.bytes_sent = 0
        self.bytes_received = 0
        self.synchronizations = 0  # Collectives in which this worker waited for all others.
        self.messages = 0  # Point-to-point messages sent.
        self._lock = threading.Lock()  # A parameter server has a thread for each worker.

    def add(self, *, sent: int = 0, received: int = 0, synchronizations: int = 0, messages: int = 0) -> None:
        """Add to the counts."""
        with self._lock:
            self.bytes_sent += sent
            self.bytes_received += received
            self.synchronizations += synchronizations
            self.messages += messages

    def as_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def load(self, counts: dict[str, int]) -> None:
        """Set the counts to what `as_dict` returned."""
        for name in self.as_dict():
            setattr(self, name, counts[name])


@runtime_checkable
class DividedGroup(Protocol):
    """A process group that torch.distributed does not know, and that makes its parts itself."""

    def divided(self, ranks: list[int]) -> Any:
        """Return the group of some of its ranks."""


class StrategyExchange(TorchExchange):
    """Collectives and messages of one worker.

    Ranks are those in the group. A failure of a back end gets a note that says which strategy was waiting.

    `group`: the default group if None. `label`: names the strategy in notes. `compression`, `memory`: see `Strategy`.
    """

    def __init__(self, group: Any, label: str, compression: Any = None, memory: Any = "none") -> None:
        super().__init__(group)
        self.traffic = Traffic()
        self._label = label
        self.reducer: Reducer | None = None  # Compresses what `compressed_mean` sends; None: it is `mean`.
        if compression is not None:
            compressor = compressor_of(compression, {})
            self.reducer = Reducer(compressor, memory_of(memory), self.rank, self.workers)

    def begin(self, request: CompressedRound) -> Callable[[], Any]:
        """Begin a round of a compressed reduction, and count it."""
        under_way = super().begin(request)

        def finish() -> Any:
            result = under_way()
            own = sum(each.nbytes for each in request.tensors)
            received = own
            if request.op == "gather":
                received = sum(each.nbytes for payload in result for each in payload) - own
            elif request.op == "broadcast":
                own, received = (own, 0) if self.rank == request.root else (0, own)
            self.traffic.add(sent=own, received=received, synchronizations=1)
            return result

        return finish

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean of a floating-point tensor over the workers; the same bits at all of them."""
        return self.sum(tensor).div_(self.workers)

    def compressed_mean(self, tensor: Tensor, of: str = "model") -> Tensor:
        """Return the mean of gradients or of changes over the workers, compressed if the strategy was asked to.

        A strategy that sends both names them by `of`: what compression left of one must not be added to the other.
        """
        if self.reducer is None:
            return self.mean(tensor)
        with self._noting("a compressed all-reduce"):
            return run(self.reducer.rounds(of, tensor), self)

    def begin_mean(self, tensor: Tensor, of: str, in_thread: bool) -> Callable[[], Tensor]:
        """Begin a compressed mean, in a thread or at once, and return a function that waits for it.

        A thread needs a group in which nothing else is sent meanwhile.
        """
        outcome: list[Tensor | Exception] = []

        def average() -> None:
            try:
                outcome.append(self.compressed_mean(tensor, of))
            except Exception as fault:
                outcome.append(fault)

        thread = self.threads.Thread(target=average, daemon=True) if in_thread else None
        thread.start() if thread else average()

        def finish() -> Tensor:
            if thread:
                thread.join()
            if isinstance(outcome[0], Exception):
                raise outcome.pop()  # Not kept: its frames would keep the group open, and the other workers waiting.
            return outcome[0]

        return finish

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over the workers; exact for integers."""
        with self._noting("an all-reduce"):
            return self._alone(CompressedRound((tensor,), "sum"))

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all workers in the order of ranks; they have the same shape and type."""
        gathered = [torch.empty_like(tensor) for _ in range(self.workers)]
        with self._noting("an all-gather"):
            dist.all_gather(gathered, tensor.contiguous(), group=self.group)
        self.traffic.add(sent=tensor.nbytes, received=tensor.nbytes * (self.workers - 1), synchronizations=1)
        return gathered

    def scatter_mean(self, tensor: Tensor) -> Tensor:
        """Return this worker's of as many equal parts of a vector as there are workers, averaged over the workers."""
        parts = list(tensor.chunk(self.workers))
        own = torch.empty_like(parts[self.rank])
        with self._noting("a reduce-scatter"):
            dist.reduce_scatter(own, parts, group=self.group)
        self.traffic.add(sent=tensor.nbytes, received=own.nbytes, synchronizations=1)
        return own.div_(self.workers)

    def broadcast(self, tensor: Tensor, root: int = 0) -> Tensor:
        """Return the root's tensor; the other workers' give its shape and type."""
        with self._noting(f"a broadcast from rank {root}"):
            return self._alone(CompressedRound((tensor,), "broadcast", root))

    def send(self, tensor: Tensor, to: int, tag: int = 0) -> None:
        """Send a tensor to one worker."""
        with self._noting(f"a message to rank {to}"):
            dist.send(tensor.contiguous(), group=self.group, group_dst=to, tag=tag)
        self.traffic.add(sent=tensor.nbytes, messages=1)

    def receive(self, tensor: Tensor, sender: int, tag: int = 0) -> Tensor:
        """Wait for a tensor of one worker, and return it; the tensor given is overwritten."""
        with self._noting(f"a message from rank {sender}"):
            dist.irecv(tensor, group=self.group, group_src=sender, tag=tag).wait()
        self.traffic.add(received=tensor.nbytes)
        return tensor

    def within(self, blocks: list[list[int]]) -> "StrategyExchange":
        """Divide the workers into groups, as all of them must at once, and return this worker's, counted with this one.

        `blocks`: ranks, each in one block.
        """
        mine = next(block for block in blocks if self.rank in block)
        if isinstance(self.group, DividedGroup):
            group: Any = self.group.divided(mine)
        else:
            ranks = dist.get_process_group_ranks(self.group or dist.group.WORLD)
            made = [dist.new_group([ranks[each] for each in block]) for block in blocks]
            group = made[blocks.index(mine)]
        exchange = StrategyExchange(group, self._label)
        exchange.traffic = self.traffic
        return exchange

    def close(self) -> None:
        """Give up a group that `within` made."""
        if not isinstance(self.group, DividedGroup):
            dist.destroy_process_group(self.group)

    def wait_for_all(self) -> None:
        """Wait until all workers are here; not counted."""
        with self._noting("a barrier"):
            dist.all_reduce(torch.zeros(1), group=self.group)

    def _alone(self, request: CompressedRound) -> Tensor:
        """Carry out a round of one tensor, and return its result."""
        (result,) = self.begin(request)()
        return result

    @property
    def threads(self) -> Any:
        """Threading module, or the group's virtual-time substitute."""
        return getattr(self.group, "threads", threading)

    @contextlib.contextmanager
    def _noting(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as fault:
            fault.add_note(
                f"the strategy {self._label} waited for {what} at rank {self.rank} of {self.workers}"
            )
            raise
