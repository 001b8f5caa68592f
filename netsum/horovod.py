"""Horovod's names for Keras 3 with the JAX or PyTorch backend: ``import netsum.horovod as hvd`` in place of ``horovod.keras``.

There are no process sets, no elastic jobs and no `join`: all ranks make equally many steps. Keras on TensorFlow is refused.
"""

import atexit
import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np

from host_agent import meeting, session
from host_agent.errors import MisuseError
from host_agent.session import Session
from host_agent.torch.options import Options
from netsum.extras import install_command

try:
    import keras
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"netsum.horovod needs Keras 3 ({install_command('keras')}), and KERAS_BACKEND=jax or torch set: {missing}",
        name=missing.name,
    ) from missing

_current: list[Session] = []


def init(timeout_s: float = 300.0, options: Options | None = None) -> None:
    """Begin this process's part in the job.

    Ranks meet as those of `netsum.jax` do with JAX, else by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which torchrun sets.

    Parameters
    ----------
    timeout_s : float
        How long to wait for the others, here and in each collective.
    options : Options, optional
        How the ranks reduce; by default as NETSUM_EXACT and the other variables say.

    Raises
    ------
    MisuseError
        Keras runs on another backend, or `init` was called before.
    JoinError
        There is no switch, or a rank did not come.
    """
    backend = keras.backend.backend()
    if backend not in ("jax", "torch"):
        raise MisuseError(
            f"netsum.horovod takes Keras on JAX or PyTorch, not on {backend}: set KERAS_BACKEND=jax or torch"
        )
    if _current:
        raise MisuseError("netsum.horovod.init was called before: call netsum.horovod.shutdown first")
    if backend == "jax":
        import netsum.jax

        netsum.jax.init(timeout_s, options)
        _current.append(netsum.jax.current_session())
    else:
        share, rank, size = meeting.meet(timeout_s)
        _current.append(session.begin(share, rank, size, name="keras", timeout_s=timeout_s, options=options))
    atexit.register(shutdown)


def shutdown() -> None:
    """Meet the other ranks and leave the job."""
    atexit.unregister(shutdown)
    if _current and keras.backend.backend() == "jax":
        import netsum.jax

        netsum.jax.shutdown()
    while _current:
        _current.pop().close()


def _session() -> Session:
    if not _current:
        raise MisuseError("call netsum.horovod.init first")
    return _current[0]


def rank() -> int:
    """Return this process's rank."""
    return _session().rank


def size() -> int:
    """Return the number of ranks."""
    return _session().size


def allreduce(value: Any, average: bool = True, name: str = "allreduce") -> Any:
    """Return the mean, or the sum, of the ranks' arrays or numbers: an array of NumPy. `name`: the ranks must agree on it."""
    return _session().allreduce(_array(value), "mean" if average else "sum", label=name)


def broadcast_object(value: Any = None, root_rank: int = 0, name: str = "broadcast_object") -> Any:
    """Return the root's object, by pickle. `name`: the ranks must agree on it."""
    data = np.frombuffer(pickle.dumps(value), np.uint8) if rank() == root_rank else np.empty(0, np.uint8)
    length = _session().broadcast(np.array([data.size]), root_rank, label=f"{name}, size")[0]
    sent = data if rank() == root_rank else np.empty(length, np.uint8)
    return pickle.loads(_session().broadcast(sent, root_rank, label=name).tobytes())


def broadcast_variables(variables: Iterable[Any], root_rank: int = 0) -> None:
    """Give Keras variables the root's values."""
    for number, each in enumerate(variables):
        each.assign(_session().broadcast(_array(each), root_rank, label=f"variable {number}"))


def DistributedOptimizer(optimizer: Any) -> Any:
    """Let a Keras optimizer apply the mean of the ranks' gradients, and return it.

    It is saved and loaded as without netsum. A model that was loaded again needs ``DistributedOptimizer(model.optimizer)`` once
    more.
    """
    apply = optimizer.apply

    def averaged(grads: Any, trainable_variables: Any = None) -> Any:
        return apply(_means(grads), trainable_variables)

    # On the instance: a subclass made here could not be loaded.
    optimizer.apply = averaged
    return optimizer


def _means(gradients: Any) -> Any:
    if keras.backend.backend() == "jax":
        import netsum.jax

        return netsum.jax.allreduce(list(gradients), "mean", label="gradients")
    import torch

    means = []
    for number, each in enumerate(gradients):
        wide = each.detach().float() if each.dtype == torch.bfloat16 else each.detach()
        mean = _session().allreduce(wide.cpu().numpy(), "mean", label=f"gradient {number}")
        means.append(torch.from_numpy(mean).to(each))
    return means


def _array(value: Any) -> Any:
    return np.array(keras.ops.convert_to_numpy(value))


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Before the first batch, gives all ranks the root's weights and optimizer state."""

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self._root = root_rank

    def on_train_begin(self, logs: Any = None) -> None:
        """Send the variables; the optimizer makes those of its own first."""
        self.model.optimizer.build(self.model.trainable_variables)
        broadcast_variables([*self.model.variables, *self.model.optimizer.variables], self._root)


class MetricAverageCallback(keras.callbacks.Callback):
    """At the end of every epoch, replaces the metrics in the logs by their means over all ranks.

    It comes before callbacks that read the logs.
    """

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Take the means."""
        for name in sorted(logs or {}):
            logs[name] = float(allreduce(np.float64(logs[name]), name=f"metric {name}"))
