"""Horovod's names for Keras 3 and for TensorFlow: ``import netsum.horovod as hvd`` in place of ``horovod.keras``.

Keras runs on JAX, PyTorch or TensorFlow. There are no process sets, no elastic jobs and no `join`: all ranks make equally many
steps.
"""

import atexit
import hashlib
import pickle
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from host_agent import meeting, session
from host_agent.collectives import Op
from host_agent.errors import MisuseError
from host_agent.joining.invitation import machine
from host_agent.session import Session
from host_agent.torch.options import Options as Options
from netsum.extras import install_command

try:
    import keras
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"netsum.horovod needs Keras 3 ({install_command('keras')}), and KERAS_BACKEND=jax, tensorflow or torch set: {missing}",
        name=missing.name,
    ) from missing

_current: list[Session] = []
_local: list[int] = []
_IN_XLA: Final = "netsum_needs_jit_compile_False"
"""Name of the operation that XLA refuses to compile: its error says it."""


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
    if backend not in ("jax", "tensorflow", "torch"):
        raise MisuseError(
            f"netsum.horovod takes Keras on JAX, TensorFlow or PyTorch, not on {backend}: set KERAS_BACKEND"
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
    here = np.frombuffer(hashlib.sha256(machine().encode()).digest(), np.uint8)
    below = _session().all_gather(here, label="machine")[: _session().rank]
    _local[:] = [int((below == here).all(axis=1).sum())]


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


def local_rank() -> int:
    """Return the number of ranks below this one on its machine."""
    _session()
    return _local[0]


def allreduce(value: Any, average: bool = True, name: str = "allreduce") -> Any:
    """Return the mean, or the sum, of the ranks' arrays or numbers: an array of NumPy, or inside ``tf.function`` a tensor.

    `name`: the ranks must agree on it.
    """
    op: Op = "mean" if average else "sum"
    if keras.backend.backend() == "tensorflow" and _tensorflow().is_symbolic_tensor(value):
        return _in_tensorflow([value], op, name)[0]
    return _session().allreduce(_array(value), op, label=name)


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


def DistributedGradientTape(tape: Any) -> Any:
    """Let a ``tf.GradientTape`` return the mean of the ranks' gradients, and return it; also inside ``tf.function``."""
    gradient = tape.gradient

    def averaged(target: Any, sources: Any, *arguments: Any, **named: Any) -> Any:
        import tensorflow as tf

        gradients = gradient(target, sources, *arguments, **named)
        return tf.nest.pack_sequence_as(sources, _means(tf.nest.flatten(gradients)))

    tape.gradient = averaged
    return tape


def _means(gradients: Any) -> Any:
    backend = keras.backend.backend()
    if backend == "jax":
        import netsum.jax

        return netsum.jax.allreduce(list(gradients), "mean", label="gradients")
    if backend == "tensorflow":
        return _in_tensorflow(gradients, "mean", "gradient")
    import torch

    means = []
    for number, each in enumerate(gradients):
        wide = each.detach().float() if each.dtype == torch.bfloat16 else each.detach()
        mean = _session().allreduce(wide.cpu().numpy(), "mean", label=f"gradient {number}")
        means.append(torch.from_numpy(mean).to(each))
    return means


def _tensorflow() -> Any:
    """Return TensorFlow's module; refuse several replicas in a process, whose calls have no order."""
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        raise MisuseError(
            f"netsum.horovod: a rank is a process with one replica, this one has {replicas}: start a process for each "
            "in place of tf.distribute"
        )
    return tf


def _in_tensorflow(values: Iterable[Any], op: Op, label: str) -> list[Any]:
    """Reduce tensors, of which some may be None, by one stateful operation: TensorFlow keeps the order of those."""
    tf, results = _tensorflow(), list(values)
    there = [number for number, each in enumerate(results) if each is not None]
    given = [
        tf.convert_to_tensor(results[number]) for number in there
    ]  # A sparse gradient becomes a dense one.

    @tf.autograph.experimental.do_not_convert
    def run(*arrays: Any) -> list[Any]:
        pairs = zip(there, arrays, strict=True)
        return [_session().allreduce(each, op, label=f"{label} {number}") for number, each in pairs]

    taken = tf.numpy_function(run, given, [each.dtype for each in given], name=_IN_XLA) if given else []
    for number, before, after in zip(there, given, taken, strict=True):
        after.set_shape(before.shape)
        results[number] = after
    return results


def _array(value: Any) -> Any:
    return np.array(keras.ops.convert_to_numpy(value))


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Before the first batch, gives all ranks the root's weights and optimizer state."""

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self._root = root_rank

    def set_model(self, model: Any) -> None:
        """Refuse what XLA would compile under TensorFlow, which has no way from there into Python."""
        super().set_model(model)
        if keras.backend.backend() == "tensorflow" and model.jit_compile:
            raise MisuseError("netsum.horovod on TensorFlow needs model.compile(…, jit_compile=False)")

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


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"netsum.horovod has no {name}: give all ranks equally many batches in place of join; there are no process sets and no "
        "elastic jobs"
    )
