"""A rank of tests/integration/test_horovod.py: a training loop of plain TensorFlow, and what netsum.horovod refuses there."""

import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import netsum.horovod as hvd

two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
hvd.init(timeout_s=200)
RANK, SIZE = hvd.rank(), hvd.size()
assert hvd.local_rank() == RANK
weights, table = tf.Variable([1.0 + RANK, 2.0, 3.0]), tf.Variable(tf.ones((4, 3)))
unused = tf.Variable(1.0)
hvd.broadcast_variables([weights, table])
assert weights.numpy().tolist() == [1, 2, 3]
inputs = np.arange(12, dtype="f").reshape(4, 3)


@tf.function  # type: ignore[untyped-decorator]
def step(x: Any, row: Any) -> tuple[Any, Any]:
    """Return the mean gradients and the mean loss."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weights * x * tf.gather(table, [row]))
    tape = hvd.DistributedGradientTape(tape)
    return tape.gradient(loss, [weights, unused, table]), hvd.allreduce(loss, name="loss")


(slope, nothing, rows), mean = step(inputs[RANK], tf.constant(RANK))
assert nothing is None
assert np.allclose(slope, inputs[:SIZE].mean(axis=0))
expected = np.zeros((4, 3))
expected[:SIZE] = weights.numpy() * inputs[:SIZE] / SIZE
assert np.allclose(rows, expected)
assert np.isclose(mean, (weights.numpy() * inputs[:SIZE]).sum(axis=1).mean())


def refused(call: Any) -> str:
    """Return the error of a call."""
    try:
        call()
    except Exception as error:
        return " ".join(str(error).split())
    raise AssertionError("no error")


compiled = tf.function(lambda x: hvd.allreduce(x), jit_compile=True)
print("compiled:", refused(lambda: compiled(tf.ones(3))))
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse", jit_compile=True)
start = hvd.BroadcastGlobalVariablesCallback(0)
print("fit:", refused(lambda: model.fit(inputs, inputs[:, :1], verbose=0, callbacks=[start])))
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
replicas = tf.function(lambda: strategy.run(lambda: hvd.allreduce(tf.ones(3))))
print("replicas:", refused(replicas))
print("join:", refused(lambda: hvd.join()), flush=True)
if SIZE > 1:
    name = f"odd {RANK}"
    print("swapped:", refused(lambda: hvd.allreduce(tf.ones(3), name=name)), flush=True)
    hvd.shutdown()
    hvd.init(timeout_s=200)
    if RANK == SIZE - 1:
        os._exit(0)
    again = tf.function(lambda x: hvd.allreduce(x))
    print("left:", refused(lambda: again(tf.ones(3))), flush=True)
