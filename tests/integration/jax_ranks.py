"""A rank of tests/integration/test_jax.py: collectives and their gradients, a training, swapped calls, and a rank that leaves."""

import functools
import hashlib
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import netsum.jax

netsum.jax.init(timeout_s=120)
RANK, SIZE = netsum.jax.rank(), netsum.jax.size()
RANKS = range(SIZE)


def collectives() -> None:
    """Compare every collective's elements with what NumPy computes, in and out of transformations."""
    sums = netsum.jax.allreduce({"a": jnp.full(3, RANK + 1, jnp.bfloat16), "b": [jnp.arange(3)]})
    assert sums["a"].dtype == jnp.bfloat16
    assert (sums["a"] == sum(RANKS) + SIZE).all()
    assert (sums["b"][0] == SIZE * jnp.arange(3)).all()
    short, long = jnp.arange(4.0) + RANK, jnp.arange(4.0 * SIZE) + RANK
    total = np.sum([np.arange(4.0 * SIZE) + rank for rank in RANKS], axis=0)
    part = total[4 * RANK : 4 * RANK + 4]
    assert (
        jax.jit(netsum.jax.all_gather)(short) == jnp.stack([jnp.arange(4.0) + rank for rank in RANKS])
    ).all()
    assert (jax.jit(netsum.jax.reduce_scatter)(long) == part).all()
    batched = jax.vmap(netsum.jax.reduce_scatter, in_axes=1, out_axes=1)(jnp.stack([long, 2 * long], 1))
    assert (batched == np.stack([part, 2 * part], 1)).all()
    mixed = jax.vmap(lambda one, other: netsum.jax.allreduce((one, other)), in_axes=(0, None))
    assert all((each == SIZE).all() for each in mixed(jnp.ones((2, 3)), jnp.ones(2)))
    assert (netsum.jax.broadcast(jnp.array([RANK + 7])) == 7).all()

    # More ranks than micro-batches: the others know the shapes only.
    assert (netsum.jax.mean_of_micro_batches(lambda index: jnp.full(2, 0.1), 1) == np.float32(0.1)).all()

    def steps(carry: Any, _: Any) -> Any:
        return netsum.jax.allreduce(carry, "mean"), netsum.jax.allreduce(carry, "max")

    carried, largest = jax.jit(lambda start: jax.lax.scan(steps, start, None, 3))(short)
    assert (carried == np.arange(4.0) + sum(RANKS) / SIZE).all()
    assert largest[:, 0].tolist() == [SIZE - 1] + [sum(RANKS) / SIZE] * 2


def gradients() -> None:
    """Compare gradients with those of the sum of all ranks' losses."""
    short, long = jnp.arange(4.0) + RANK, jnp.arange(4.0 * SIZE) + RANK
    total = np.sum([np.arange(4.0 * SIZE) + rank for rank in RANKS], axis=0)
    for reduce in (netsum.jax.allreduce, jax.checkpoint(netsum.jax.allreduce)):
        gradient = jax.jit(jax.grad(lambda x, reduce=reduce: (reduce(x) ** 2).sum()))(short)
        assert (gradient == 2 * SIZE * sum(np.arange(4.0) + rank for rank in RANKS)).all()
    assert (jax.grad(lambda x: (netsum.jax.reduce_scatter(x) ** 2).sum())(long) == 2 * total).all()
    mean = jax.grad(lambda x: (netsum.jax.reduce_scatter(x, "mean") ** 2).sum())(long)
    np.testing.assert_allclose(mean, 2 * total / SIZE**2, rtol=1e-6)
    weights, factors = jnp.arange(4.0 * SIZE).reshape(SIZE, 4), SIZE * (SIZE + 1) // 2
    gathered = jax.grad(lambda x: (netsum.jax.all_gather(x) * weights * (RANK + 1)).sum())(short)
    assert (gathered == factors * weights[RANK]).all()
    sent = jax.grad(lambda x: (netsum.jax.broadcast(x) * (RANK + 1)).sum())(short)
    assert (sent == (factors if RANK == 0 else 0)).all()


def refused(call: Any) -> str:
    """Return the error of a call."""
    try:
        call()
    except Exception as error:
        return str(error).strip().splitlines()[-1]
    raise AssertionError("no error")


def trained() -> str:
    """Train a small network on twelve micro-batches a step; return the SHA-256 of its weights."""
    data = np.random.default_rng(5)
    inputs, targets = data.normal(size=(12, 8, 16)).astype("f"), data.normal(size=(12, 8, 4)).astype("f")
    weights: Any = {
        "in": jnp.asarray(data.normal(size=(16, 32)).astype("f")),
        "out": jnp.asarray(data.normal(size=(32, 4)).astype(jnp.bfloat16)),
    }

    def slope(weights: Any, x: Any, y: Any) -> Any:
        return jax.grad(lambda w: ((jnp.tanh(x @ w["in"]) @ w["out"] - y) ** 2).mean())(weights)

    gradient = jax.jit(slope)
    for _ in range(5):
        mean = netsum.jax.mean_of_micro_batches(
            functools.partial(
                lambda weights, index: gradient(weights, inputs[index], targets[index]), weights
            ),
            12,
        )
        weights = jax.tree.map(lambda weight, each: weight - weight.dtype.type(0.1) * each, weights, mean)
    digest = hashlib.sha256()
    for each in jax.tree.leaves(weights):
        digest.update(np.asarray(each).tobytes())
    return digest.hexdigest()


collectives()
gradients()
print("max:", refused(lambda: jax.grad(lambda x: netsum.jax.allreduce(x, "max").sum())(jnp.ones(2))))
print("uint32:", refused(lambda: netsum.jax.allreduce(jnp.ones(2, jnp.uint32))))
print("again:", refused(netsum.jax.init))
print("weights:", trained(), flush=True)
if SIZE > 1:

    def first(x: Any) -> Any:
        """Reduce on a line of its own."""
        return netsum.jax.allreduce(x)

    def second(x: Any) -> Any:
        """Reduce on another line."""
        return netsum.jax.allreduce(x)

    one, other = (first, second) if RANK else (second, first)
    both = jax.jit(lambda x: (one(x), other(100 * x)))
    print("swapped:", refused(lambda: jax.block_until_ready(both(jnp.ones(3)))), flush=True)
    netsum.jax.shutdown()
    netsum.jax.init(timeout_s=120)
    if RANK == SIZE - 1:
        os._exit(0)
    print("left:", refused(lambda: jax.block_until_ready(netsum.jax.allreduce(jnp.ones(3)))))
