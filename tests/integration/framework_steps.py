"""A rank of tests/integration/framework_times.py: steps of one training in a framework, over netsum or its own collective.

It imports nothing of the checkout. Words: the framework, "netsum" or "native", the number of steps. A linear model of 983,040
float32 is trained on a rank's 32 samples; a line of JSON has the median milliseconds of a step and the last loss.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

FRAMEWORK, HOW, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3])
INPUTS, OUTPUTS, RATE, WARM = 1024, 960, 0.01, 3


def data(rank: int) -> tuple[Any, Any]:
    """Return a rank's inputs and targets."""
    weights = np.random.default_rng(1).normal(size=(INPUTS, OUTPUTS)).astype("f")
    inputs = np.random.default_rng(2 + rank).normal(size=(32, INPUTS)).astype("f")
    return inputs, inputs @ weights


def times(rank: int, step: Callable[[], Any]) -> dict[str, Any]:
    """Make the steps, each of which ends with a loss in this process; return what is printed."""
    took = []
    loss = 0.0
    for _ in range(WARM + STEPS):
        began = time.perf_counter()
        loss = float(step())
        took.append((time.perf_counter() - began) * 1e3)
    return {"rank": rank, "step_ms": statistics.median(took[WARM:]), "loss": loss}


def jax() -> dict[str, Any]:
    """Steps of JAX; natively `pmean` over Gloo."""
    import jax
    import jax.numpy as jnp

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    x, y = data(rank)

    def gradient(w: Any, x: Any, y: Any) -> Any:
        return jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)

    if HOW == "netsum":
        import netsum.jax

        netsum.jax.init()

        def run(w: Any, x: Any, y: Any) -> Any:
            loss, slope = gradient(w, x, y)
            return w - RATE * OUTPUTS * netsum.jax.allreduce(slope, "mean"), loss

        step, w = jax.jit(run), jnp.zeros((INPUTS, OUTPUTS))
    else:
        from jax._src.xla_bridge import _jax

        made = _jax.make_gloo_tcp_collectives  # All hosts of a testbed have the machine's name.
        own = os.environ["OWN_ADDRESS"]
        _jax.make_gloo_tcp_collectives = lambda distributed_client: made(distributed_client, hostname=own)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", size, rank)
        mesh = jax.make_mesh((size,), ("rank",), axis_types=(jax.sharding.AxisType.Auto,))
        everywhere, shared = jax.P(), jax.P("rank")

        def run(w: Any, x: Any, y: Any) -> Any:
            loss, slope = gradient(w, x, y)
            return w - RATE * OUTPUTS * jax.lax.pmean(slope, "rank"), loss[None]

        specs = {"in_specs": (everywhere, shared, shared), "out_specs": (everywhere, shared)}
        step = jax.jit(jax.shard_map(run, mesh=mesh, check_vma=False, **specs))
        place = jax.make_array_from_process_local_data
        x, y = (place(jax.NamedSharding(mesh, shared), each) for each in (x, y))
        w = place(jax.NamedSharding(mesh, everywhere), np.zeros((INPUTS, OUTPUTS), "f"))
    state = [w]

    def once() -> float:
        state[0], loss = step(state[0], x, y)
        state[0].block_until_ready()
        return float(np.asarray(loss.addressable_shards[0].data).reshape(()))

    return times(rank, once)


def mpi() -> dict[str, Any]:
    """Steps of an mpi4py program; natively MPICH's Allreduce over TCP."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    if HOW != "native":
        import netsum.mpi

        comm = netsum.mpi.wrap(comm, options=netsum.mpi.Options(exact=HOW == "exact"))
    x, y = data(comm.rank)
    w, total = np.zeros((INPUTS, OUTPUTS), "f"), np.empty((INPUTS, OUTPUTS), "f")

    def once() -> float:
        error = x @ w - y
        comm.Allreduce(x.T @ error * np.float32(2 / len(x)), total)
        w[...] -= np.float32(RATE / comm.size) * total
        return float((error**2).mean())

    return times(comm.rank, once)


def tensorflow() -> dict[str, Any]:
    """Steps of TensorFlow; natively MultiWorkerMirroredStrategy with its ring."""
    rank = int(os.environ["RANK"])
    import tensorflow as tf

    if HOW == "netsum":
        import netsum.horovod as hvd

        hvd.init()
        x, y = (tf.constant(each) for each in data(rank))
        w = tf.Variable(tf.zeros((INPUTS, OUTPUTS)))

        def replica() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ w - y) ** 2)
            w.assign_sub(RATE * OUTPUTS * hvd.DistributedGradientTape(tape).gradient(loss, [w])[0])
            return loss

        step = tf.function(replica)
    else:
        workers = [f"{each}:29701" for each in os.environ["ADDRESSES"].split()]
        os.environ["TF_CONFIG"] = json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        )
        ring = tf.distribute.experimental.CommunicationImplementation.RING
        strategy = tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=tf.distribute.experimental.CommunicationOptions(implementation=ring)
        )
        x, y = (tf.constant(each) for each in data(rank))  # The strategy comes before all else of TensorFlow.
        with strategy.scope():
            w = tf.Variable(tf.zeros((INPUTS, OUTPUTS)), aggregation=tf.VariableAggregation.MEAN)

        def replica() -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((x @ w - y) ** 2)
            w.assign_sub(RATE * OUTPUTS * tape.gradient(loss, w))  # Takes the mean of the replicas.
            return loss

        step = tf.function(lambda: strategy.experimental_local_results(strategy.run(replica))[0])
    return times(rank, lambda: step().numpy())


def _ray_worker(where: dict[str, str]) -> None:
    import torch
    from ray.train.torch import prepare_model

    rank = torch.distributed.get_rank()
    torch.set_num_threads(1)
    x, y = (torch.from_numpy(each) for each in data(rank))
    linear = torch.nn.Linear(INPUTS, OUTPUTS, bias=False)
    torch.nn.init.zeros_(linear.weight)
    model = prepare_model(linear)
    optimizer = torch.optim.SGD(model.parameters(), RATE * OUTPUTS)

    def once() -> float:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    with open(f"{where['folder']}/{rank}.json", "w") as file:
        json.dump(times(rank, once), file)


def ray() -> dict[str, Any]:
    """Steps of PyTorch in Ray Train, natively over Gloo; run on the first host alone, where Ray is up."""
    import tempfile

    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            _ray_worker,
            train_loop_config={"folder": folder},
            torch_config=TorchConfig(backend="netsum" if HOW == "netsum" else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=int(os.environ["WORLD_SIZE"]), resources_per_worker={"here": 1}
            ),
            run_config=RunConfig(storage_path=folder),
        ).fit()
        with open(f"{folder}/0.json") as file:
            return dict(json.load(file))


if __name__ == "__main__":
    said = {"jax": jax, "mpi": mpi, "tensorflow": tensorflow, "ray": ray}[FRAMEWORK]()
    print("said: " + json.dumps(said), flush=True)
