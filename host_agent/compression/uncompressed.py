"""DDP's buckets that are sent as they are: the all-reduce of DDP itself, and counts of it."""

import threading
import time

import torch
import torch.distributed as dist
from torch import Tensor

from host_agent.compression.exchange import TorchExchange
from host_agent.compression.reducer import Reducer


class Uncompressed:
    """Begins all-reduces in place, several at a time; a trainer computes on meanwhile.

    `exchange`: the group. `reducer`: its statistics are kept.
    """

    def __init__(self, exchange: TorchExchange, reducer: Reducer) -> None:
        self._exchange, self._reducer = exchange, reducer
        self._lock = threading.Lock()  # Buckets begin in the trainer's thread, and end in the back end's.
        self._under_way = 0
        self._counted = exchange.wire_bytes()

    def begin(self, key: str, bucket: Tensor) -> torch.futures.Future[Tensor]:
        """Replace a bucket by its mean over the workers; the future is of the bucket.

        A value that is not finite comes out as the back end has it in its sums.
        """
        began = time.perf_counter_ns()
        with self._lock:
            if not self._under_way:  # The counters so far belong to other collectives.
                self._counted = self._exchange.wire_bytes()
            self._under_way += 1
        bucket.mul_(
            1.0 / self._exchange.workers
        )  # Before the sum, as DDP itself does: the bits are the same.
        spent_ns = time.perf_counter_ns() - began
        work = dist.all_reduce(bucket, group=self._exchange.group, async_op=True)

        def finish(ended: torch.futures.Future[list[Tensor]]) -> Tensor:
            counted = self._exchange.wire_bytes()
            with self._lock:
                self._under_way -= 1
                before, self._counted = self._counted, counted
                ended.value()  # Raises what went wrong.
                self._reducer.count_uncompressed(key, bucket, spent_ns)
                if before is not None and counted is not None:
                    # Frames of buckets that are under way at once count for the one that ends first.
                    self._reducer.count_wire(key, counted[0] - before[0], counted[1] - before[1])
            return bucket

        return work.get_future().then(finish)
