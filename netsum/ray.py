"""A backend of Ray's collectives: ``netsum.ray.register()`` at the driver and in every actor, then ``backend="NETSUM"``.

Ray Train needs none of this: ``TorchConfig(backend="netsum")`` takes netsum's process group.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from host_agent import session
from host_agent.collectives import Op
from host_agent.errors import ArrayError, MisuseError
from host_agent.joining import JoinError
from host_agent.torch.options import Options as Options
from netsum.extras import install_command

try:
    import ray
    from ray.experimental import internal_kv
    from ray.util.collective import register_collective_backend
    from ray.util.collective.collective_group.base_collective_group import BaseGroup
    from ray.util.collective.types import ReduceOp
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"netsum.ray needs Ray ({install_command('ray')}): {missing}", name=missing.name
    ) from missing

NAME: Final = "NETSUM"
_OPS: Final[dict[Any, Op]] = {ReduceOp.SUM: "sum", ReduceOp.MIN: "min", ReduceOp.MAX: "max"}
_RETRY_S: Final = 0.05


def register(timeout_s: float = 300.0, options: Options | None = None) -> None:
    """Make the backend known to Ray in this process; can be called again, which changes nothing.

    ``ray.init(runtime_env={"worker_process_setup_hook": "netsum.ray.register"})`` calls it in every actor.

    Parameters
    ----------
    timeout_s : float
        How long a group waits for its actors to come, and in each collective.
    options : Options, optional
        How the ranks reduce; by default as NETSUM_EXACT and the other variables say.
    """
    with contextlib.suppress(ValueError):  # Registered already.
        register_collective_backend(
            NAME, type("Group", (Group,), {"_timeout_s": timeout_s, "_options": options})
        )


class Group(BaseGroup):
    """A group of actors; Ray makes it. Takes arrays of NumPy and tensors of PyTorch."""

    _timeout_s = 300.0
    _options: Options | None = None

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        job = ray.get_runtime_context().get_job_id()
        self._key = f"netsum/{job}/{group_name}".encode()
        self._session = session.begin(
            self._share, rank, world_size, name="ray", timeout_s=self._timeout_s, options=self._options
        )
        if rank == 0:  # All have read it: another group may have this name later.
            internal_kv._internal_kv_del(self._key)

    @classmethod
    def backend(cls) -> str:
        """Return "NETSUM"."""
        return NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        """Return True."""
        return True

    def destroy_group(self) -> None:
        """Meet the other actors, and leave the job: they must call it at the same time."""
        self._session.close()

    def allreduce(self, tensors: list[Any], allreduce_options: Any = None) -> None:
        """Reduce a tensor in place."""
        given, op = _array(tensors[0]), _op("allreduce", allreduce_options)
        _write(tensors[0], self._session.allreduce(given, op, label=self._label("allreduce")))

    def reduce(self, tensors: list[Any], reduce_options: Any = None) -> None:
        """Reduce a tensor; it changes at the root alone."""
        root = getattr(reduce_options, "root_rank", 0)
        label = self._label(f"reduce to rank {root}")
        result = self._session.allreduce(_array(tensors[0]), _op("reduce", reduce_options), label=label)
        if self.rank == root:
            _write(tensors[0], result)

    def reducescatter(
        self, tensors: list[Any], tensor_lists: list[Sequence[Any]], reducescatter_options: Any = None
    ) -> None:
        """Reduce a list of tensors, one for each rank; `tensors` receives this rank's."""
        op = _op("reducescatter", reducescatter_options)
        pieces = self._alike("reducescatter", [tensors[0], *tensor_lists[0]])[1:]
        result = self._session.reduce_scatter(np.stack(pieces), op, label=self._label("reducescatter"))
        _write(tensors[0], result[0])

    def allgather(
        self, tensor_lists: list[Sequence[Any]], tensors: list[Any], allgather_options: Any = None
    ) -> None:
        """Gather a tensor of every rank in a list."""
        own = self._alike("allgather", [tensors[0], *tensor_lists[0]])[0]
        rows = self._session.all_gather(own, label=self._label("allgather"))
        for target, row in zip(tensor_lists[0], rows, strict=True):
            _write(target, row)

    def broadcast(self, tensors: list[Any], broadcast_options: Any = None) -> None:
        """Overwrite a tensor with the root's."""
        root = getattr(broadcast_options, "root_rank", 0)
        label = self._label("broadcast")
        _write(tensors[0], self._session.broadcast(_array(tensors[0]), root, label=label))

    def barrier(self, barrier_options: Any = None) -> None:
        """Wait for all ranks."""
        self._session.barrier(label=self._label("barrier"))

    def send(self, tensors: list[Any], send_options: Any) -> None:
        """Refuse."""
        raise MisuseError(
            "netsum's groups have no send and recv: use Ray's objects, or a group of the backend GLOO"
        )

    recv = send

    def _label(self, call: str) -> str:
        return f"group {self.group_name}, {call}"

    def _alike(self, call: str, tensors: Sequence[Any]) -> list[Any]:
        arrays = [_array(each) for each in tensors]
        forms = {f"{each.dtype} {list(each.shape)}" for each in arrays}
        if len(forms) > 1 or len(arrays) != self.world_size + 1:
            raise ArrayError(
                f"{self._label(call)}: expected a list of {self.world_size} tensors like the other argument, got "
                f"{len(arrays) - 1}, in all of {' and '.join(sorted(forms))}"
            )
        return arrays

    def _share(self, text: str) -> str:
        """Send the first rank's text through Ray's store of keys."""
        if self.rank == 0:
            internal_kv._internal_kv_put(self._key, text.encode(), overwrite=True)
            return text
        until = time.monotonic() + self._timeout_s
        while (found := internal_kv._internal_kv_get(self._key)) is None:
            if time.monotonic() > until:
                raise JoinError(f"group {self.group_name}: rank 0 did not come within {self._timeout_s:g} s")
            time.sleep(_RETRY_S)
        return str(found.decode())


def _op(call: str, options: Any) -> Op:
    operation = getattr(options, "reduceOp", ReduceOp.SUM)
    if operation not in _OPS:
        raise MisuseError(
            f"{call}: netsum's groups reduce by SUM, MIN and MAX, not by {operation.name}: use a group of the backend GLOO"
        )
    return _OPS[operation]


def _array(tensor: Any) -> Any:
    """Return a tensor's elements; bfloat16, which NumPy lacks, as float32."""
    if isinstance(tensor, np.ndarray):
        return tensor
    if not hasattr(tensor, "detach"):
        raise ArrayError(f"expected an array of NumPy or a tensor of PyTorch, got a {type(tensor).__name__}")
    tensor = tensor.detach().cpu()
    return (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()


def _write(tensor: Any, result: Any) -> None:
    if isinstance(tensor, np.ndarray):
        tensor[...] = result
    else:
        import torch

        tensor.detach().copy_(torch.from_numpy(np.ascontiguousarray(result)))
